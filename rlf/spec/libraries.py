"""Estimators, losses and their settings as other libraries and papers name them: the table of the documentation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyNames:
    """One setting of `train`."""

    here: str
    """As a spec writes it, below `train`."""
    trl: str
    """`GRPOConfig` of TRL 1.16."""
    verl: str
    openrlhf: str
    """0.11.2; `-` where it has none."""
    paper: str
    equation: str


ROWS = (
    KeyNames(
        "algorithm: grpo", "default", "`adv_estimator: grpo`", "`group_norm`",
        "arXiv:2402.03300", "A = (r - mean(r)) / std(r) over the group",
    ),
    KeyNames(
        "algorithm: dr_grpo", "`scale_rewards: none`", "`norm_adv_by_std_in_grpo: false`", "`dr_grpo`",
        "arXiv:2503.20783", "A = r - mean(r)",
    ),
    KeyNames(
        "algorithm: rloo", "`RLOOTrainer`", "`rloo`", "`rloo`",
        "arXiv:2402.14740", "A_i = r_i - mean of the others",
    ),
    KeyNames(
        "algorithm: reinforce", "-", "`reinforce_plus_plus`", "`reinforce`",
        "arXiv:2501.03262", "A = whiten(return)",
    ),
    KeyNames(
        "algorithm: reinforce_baseline", "-", "`reinforce_plus_plus_baseline`", "`reinforce_baseline`",
        "arXiv:2501.03262", "A = whiten(r - mean(r))",
    ),
    KeyNames("algorithm: flash_reinforce", "-", "-", "`flash_reinforce`", "OpenRLHF", "A = r - mean(r) over the batch"),
    KeyNames(
        "algorithm: {kind: gae, observations: bootstrap}", "-", "-", "`gae`",
        "arXiv:1506.02438", "t + 1 is the next token; V = 0 on observations",
    ),
    KeyNames(
        "algorithm: {kind: gae, observations: skip}", "-", "`gae`", "-",
        "arXiv:1506.02438", "t + 1 is the next sampled token",
    ),
    KeyNames("algorithm: mt_grpo", "-", "-", "-", "arXiv:2505.11821", "A_k = N(R) + c N_k(G_k) for turn k"),
    KeyNames(
        "algorithm: gdpo", "`multi_objective_aggregation: normalize_then_sum`", "`gdpo`", "-",
        "arXiv:2601.05242", "A = S / std(S) over the batch, S = sum_k w_k N(r_k)",
    ),
    KeyNames("algorithm: remax", "-", "`remax`", "-", "arXiv:2310.10505", "A = r - r of the greedy rollout"),
    KeyNames("algorithm: opo", "-", "`opo`", "-", "arXiv:2505.23585", "A = r - sum(l r) / sum(l), l the length"),
    KeyNames(
        "algorithm: gpg", "-", "`gpg`, which takes another M: rewards of 0", "-",
        "arXiv:2504.02546", "A = B / (B - M) (r - mean(r)), M of B in groups of equal rewards",
    ),
    KeyNames(
        "algorithm: {kind: pass_at_k, k: 4}", "-", "-", "-",
        "arXiv:2508.10751", "A_i = (E[max of k with i] - E[max of k]) / std(max of k)",
    ),
    KeyNames(
        "algorithm: grpo_passk", "-", "`grpo_passk`", "-",
        "arXiv:2503.19595", "A of the best = (first - second) / std(r), 0 of others",
    ),
    KeyNames(
        "loss: {kind: ppo}", "default", "`loss_mode: vanilla`", "`ppo`",
        "arXiv:1707.06347, equation 7", "-min(rho A, clip(rho) A)",
    ),
    KeyNames(
        "loss: {kind: gspo}", "`importance_sampling_level: sequence`", "`loss_mode: gspo`", "`gspo`",
        "arXiv:2507.18071", "ppo with rho = exp(mean log ratio) of the sequence",
    ),
    KeyNames(
        "loss: {kind: cispo}", "`loss_type: cispo`, where epsilon_high is 1 + clip_high", "`loss_mode: cispo`", "-",
        "arXiv:2506.13585, equation 4", "-sg(clip(rho)) A log pi",
    ),
    KeyNames(
        "loss: {kind: sapo}", "`loss_type: sapo`", "`loss_mode: sapo`", "-",
        "arXiv:2511.20347", "-sigmoid(tau (rho - 1)) 4 / tau A",
    ),
    KeyNames("loss: {kind: gpg}", "-", "`loss_mode: gpg`", "-", "arXiv:2504.02546", "-A log pi"),
    KeyNames(
        "loss: {aggregation: token_mean}", "`loss_type: dapo`", "`token-mean`", "`token-mean`",
        "arXiv:2503.14476", "sum over tokens / number of tokens",
    ),
    KeyNames(
        "loss: {aggregation: seq_mean_token_mean}", "`loss_type: grpo`", "`seq-mean-token-mean`",
        "`seq-mean-token-mean`", "arXiv:2402.03300, equation 3", "mean over sequences of the mean over tokens",
    ),
    KeyNames(
        "loss: {aggregation: constant_length, length: 512}", "`loss_type: dr_grpo`",
        "`seq-mean-token-sum-norm`, `loss_scale_factor`", "-",
        "arXiv:2503.20783", "mean over sequences of the sum over tokens / length",
    ),
    KeyNames(
        "loss: {correction: {level: token, mode: clip}}", "`token_truncate`", "`rollout_is: token`",
        "level `token`, mode `clip`", "Yao et al. 2025", "w_t = clip(pi / mu)",
    ),
    KeyNames(
        "loss: {correction: {level: seq_product, mode: clip}}", "`sequence_truncate`", "`rollout_is: sequence`", "-",
        "Yao et al. 2025", "w = clip(prod_t pi / mu)",
    ),
    KeyNames(
        "loss: {correction: {level: seq_product, mode: mask}}", "`sequence_mask`", "-", "-",
        "Yao et al. 2025", "w = prod_t pi / mu inside the thresholds, else 0",
    ),
    KeyNames(
        "loss: {off_policy_mask: 0.5}", "`off_policy_mask_threshold`", "-", "-",
        "arXiv:2512.02556", "0 where A < 0 and mean log(mu / pi) > delta",
    ),
    KeyNames(
        "loss: {probability_mask: 0.3}", "-", "-", "-",
        "prime-rl's IPO, INTELLECT policy optimisation", "0 where |pi - mu| > eps",
    ),
    KeyNames(
        "loss: {top_entropy: 0.2}", "`top_entropy_quantile`", "-", "-",
        "arXiv:2506.01939", "0 where H < its (1 - rho) quantile",
    ),
    KeyNames(
        "mask_truncated: true", "`mask_truncated_completions`", "-", "-",
        "arXiv:2503.14476, section 3.4", "0 where the trajectory ran out of tokens",
    ),
    KeyNames(
        "kl: {sync_every: 64, sync_mix: 0.6}", "`sync_ref_model`, `ref_model_mixup_alpha`", "-", "-",
        "arXiv:2404.09656", "ref <- alpha pi + (1 - alpha) ref",
    ),
)  # fmt: skip
"""In the order of a spec: estimators, losses, means, corrections, masks, reference."""
