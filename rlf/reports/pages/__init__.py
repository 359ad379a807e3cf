"""Reports as pages of HTML: templates, charts and turns, for one file now and for a served page alike."""
