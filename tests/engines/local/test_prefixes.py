import random

import pytest
import torch

from rlf.engines.local import cache as prefixes
from rlf.engines.local.attention import using
from rlf.engines.local.cache import merge_prefixes, sort_by_tokens, split_rows
from rlf.engines.local.model import load_model, split

from ...models import save_random_model


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """A random model in float64."""
    folder = save_random_model(tmp_path_factory.mktemp("model"))
    model = load_model(str(folder), dtype=torch.float32, device=torch.device("cpu"))
    return split(model.full.double(), torch.float64)


def rows_that_begin_alike(seed, count=9, longest=14):
    """Rows of few different tokens, some of them beginnings of others or equal to them."""
    draw = random.Random(seed)
    rows = [[5, *draw.choices([3, 4], k=draw.randrange(longest))] for _ in range(count)]
    rows += [rows[0], rows[1][: len(rows[1]) // 2 + 1], [9, 8]]
    lengths_R = torch.tensor([len(row) for row in rows])
    tokens_RT = torch.zeros(len(rows), int(lengths_R.max()), dtype=torch.int64)
    for index, row in enumerate(rows):
        tokens_RT[index, : len(row)] = torch.tensor(row)
    order = sort_by_tokens(torch.arange(len(rows)), tokens_RT, lengths_R)
    return tokens_RT[order], lengths_R[order]


def states_and_gradient(model, hidden_of):
    states = hidden_of()
    model.full.zero_grad()
    (states * torch.linspace(-1, 1, states.numel(), dtype=states.dtype).view_as(states)).sum().backward()
    return states.detach(), torch.cat([p.grad.flatten() for p in model.full.parameters() if p.grad is not None])


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("limits", [{}, {"_CALL_COST": 0, "_COPY_COST": 0}, {"_CALL_COST": 0, "_MASK_NUMEL": 1}])
def test_states_and_gradients_of_a_tree_equal_those_of_the_rows_one_by_one(exact, monkeypatch, limits, on_gpu):
    monkeypatch.setattr(prefixes, "_is_on_gpu", lambda _: on_gpu)
    for name, value in limits.items():
        monkeypatch.setattr(prefixes, name, value)
    for seed in range(4):
        tokens_RT, lengths_R = rows_that_begin_alike(seed)
        valid_RT = torch.arange(tokens_RT.shape[1]) < lengths_R[:, None]
        tree = merge_prefixes(tokens_RT, lengths_R)
        distinct = {
            tuple(r[: n + 1]) for r, m in zip(tokens_RT.tolist(), lengths_R.tolist(), strict=True) for n in range(m)
        }
        assert len(tree.tokens_N) == len(distinct)

        def of_tree(tree=tree, valid_RT=valid_RT):
            with using(tree):
                return exact.hidden(tree.tokens_N[None], tree.positions_N[None])[0][tree.index_RT[valid_RT]]

        shared, gradient = states_and_gradient(exact, of_tree)
        plain, wanted = states_and_gradient(exact, lambda t=tokens_RT, v=valid_RT: exact.hidden(t)[v])
        torch.testing.assert_close(shared, plain, atol=1e-12, rtol=1e-12)
        assert (gradient - wanted).norm() <= 1e-6 * wanted.norm()  # transformers' norms compute in float32


def test_micro_batches_hold_every_row_once_within_the_budget_and_break_where_rows_differ():
    tokens_BT = torch.arange(12)[:, None] // 4 * 1000 + torch.arange(200)
    lengths_B = torch.full((12,), 200)
    order = sort_by_tokens(torch.arange(11, -1, -1), tokens_BT, lengths_B)
    parts = list(split_rows(order, tokens_BT, lengths_B, max_tokens=300))
    assert [part.tolist() for part in parts] == [[3, 2, 1, 0], [7, 6, 5, 4], [11, 10, 9, 8]]
    assert [len(part) for part in split_rows(order, tokens_BT, lengths_B, max_tokens=100)] == [1] * 12


@pytest.mark.parametrize("num_keys", [1, 7, 16, 33])
@pytest.mark.parametrize("num_queries", [1, 5])
@pytest.mark.parametrize("masked", [False, True])
def test_on_a_gpu_no_kernel_is_asked_for_a_mask_and_several_query_heads_of_a_key_at_once(
    monkeypatch, num_keys, num_queries, masked
):
    """None of torch's own takes both: without a fused kernel the score of every pair is held."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, heads, n, 8) for heads, n in ((6, num_queries), (2, num_keys), (2, num_keys)))
    mask = torch.rand(3, 1, num_queries, num_keys) < 0.5 if masked else None
    if mask is not None:
        mask[..., 0] = True
    wanted = prefixes.attend(query, key, value, mask, scale=0.3, causal=not masked)
    asked = []

    def kernel(query, key, value, mask=None, **options):
        asked.append((query.shape[1] == key.shape[1], options.get("enable_gqa", False)))
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, **options)

    monkeypatch.setattr(prefixes, "sdpa", kernel)
    monkeypatch.setattr(prefixes, "_is_on_gpu", lambda _: True)
    found = prefixes.attend(query, key, value, mask, scale=0.3, causal=not masked)
    assert asked == [(True, False)]
    torch.testing.assert_close(found, wanted)


def test_layers_of_a_block_share_one_mask_whose_rows_begin_where_a_gpus_kernel_reads_them():
    tokens_RT, lengths_R = rows_that_begin_alike(1)
    [block] = merge_prefixes(tokens_RT, lengths_R).blocks
    query, few = (torch.zeros(1, heads, block.num_queries, 8, dtype=torch.bfloat16) for heads in (4, 2))
    numbers = block._summand(query, 2)
    assert block._summand(query, 2) is numbers and numbers.dtype is torch.bfloat16 and numbers.stride(0) % 8 == 0
    assert (
        torch.equal(numbers == 0, torch.cat([block.mask_QK] * 2))
        and block._summand(few, 1).shape[0] == len(numbers) / 2
    )


def test_cudnns_attention_which_plans_every_new_shape_is_shut_out(exact):
    assert not torch.backends.cuda.cudnn_sdp_enabled() and torch.backends.cuda.mem_efficient_sdp_enabled()
