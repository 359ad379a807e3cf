"""DeepSeek V3 and R1's form for any model of the family: calls as in `deepseek`, their JSON always in a code fence.

`deepseek` takes the form that the model's template writes. This one is for a model that was taught the fenced form and
has a template of the later one, or of none; the tools and the form are then described in the system message.
"""

from __future__ import annotations

from rlf.apps.families.deepseek import DeepseekFormat


class DeepseekFencedFormat(DeepseekFormat):
    """The fenced form, chosen by name."""

    by_name = True
    template_marks = ()
    always_fenced = True
