"""The options of OpenRLHF 0.11.2 with their arguments, for checks where OpenRLHF is not installed.

A test holds it against the parser of the installed version.
"""

from __future__ import annotations

_BY_VALUE = {
    "float": (
        "actor.adam.eps actor.adam.lr actor.adam.weight_decay actor.aux_loss_coef actor.dual_clip actor.entropy_coef "
        "actor.eps_clip actor.lr_warmup_ratio actor.max_norm actor.min_lr_ratio actor.muon.lr actor.muon.momentum "
        "algo.advantage.gamma algo.advantage.lambd algo.kl.init_coef algo.kl.target ckpt.max_mem critic.adam.eps "
        "critic.adam.lr critic.adam.weight_decay critic.lr_warmup_ratio critic.max_norm critic.min_lr_ratio "
        "critic.muon.lr critic.muon.momentum critic.value_clip ds.lora.dropout eval.temperature "
        "reward.overlong_buffer_len reward.overlong_penalty_factor reward.stop_properly_penalty_coef "
        "rollout.temperature rollout.top_p train.ema_beta vllm.gpu_memory_utilization"
    ),
    "float +": ("algo.advantage.is_correction_threshold"),
    "float 2": (
        "actor.adam.betas actor.eps_clip_low_high algo.dynamic_filtering_range critic.adam.betas reward.clip_range"
    ),
    "int": (
        "actor.muon.ns_steps actor.num_gpus_per_node actor.num_nodes algo.kl.horizon ckpt.max_num ckpt.save_steps "
        "critic.freezing_steps critic.muon.ns_steps critic.num_gpus_per_node critic.num_nodes "
        "data.dataloader_num_workers data.max_images_per_prompt data.max_len data.max_samples ds.lora.alpha "
        "ds.lora.rank ds.ring_attn_head_stride ds.ring_attn_size ds.tensor_parallel_size ds.zero_stage ds.zpg "
        "eval.n_samples_per_prompt eval.steps local_rank logger.logging_steps ref.num_gpus_per_node ref.num_nodes "
        "reward.num_gpus_per_node reward.num_nodes rollout.batch_size rollout.max_new_tokens "
        "rollout.max_tokens_per_gpu rollout.micro_batch_size rollout.n_samples_per_prompt "
        "rollout.vllm_generate_batch_size train.async_queue_size train.batch_size train.max_epochs "
        "train.max_tokens_per_gpu train.micro_batch_size train.num_episodes train.seed vllm.num_engines "
        "vllm.tensor_parallel_size"
    ),
    "str": (
        "actor.loss_agg_mode actor.lr_scheduler actor.model_name_or_path actor.optim actor.policy_loss_type "
        "algo.advantage.estimator algo.advantage.is_correction_gating algo.advantage.is_correction_level "
        "algo.advantage.is_correction_mode algo.kl.estimator ckpt.best_metric_key ckpt.output_dir ckpt.path "
        "critic.lr_scheduler critic.model_name_or_path critic.optim data.image_key data.input_key data.input_template "
        "data.label_key data.prompt_dataset data.prompt_probs data.prompt_split ds.attn_implementation "
        "ds.experts_implementation ds.grad_accum_dtype ds.param_dtype ds.value_head_prefix eval.dataset eval.split "
        "logger.tensorboard_dir logger.wandb.group logger.wandb.key logger.wandb.org logger.wandb.project "
        "logger.wandb.run_name reward.model_name_or_path reward.remote_url train.agent_func_path vllm.sync_backend"
    ),
    "str *": ("ds.lora.target_modules"),
    "switch": (
        "actor.freeze_visual_encoder actor.gradient_checkpointing_enable actor.gradient_checkpointing_reentrant "
        "actor.muon.nesterov actor.muon.no_nesterov algo.advantage.no_std_norm algo.dynamic_filtering_enable "
        "algo.kl.unbiased_gradient algo.kl.use_loss ckpt.disable_ds ckpt.load_enable ckpt.save_hf critic.muon.nesterov "
        "critic.muon.no_nesterov critic.save_value_network data.apply_chat_template data.disable_fast_tokenizer "
        "ds.adam_offload ds.deepcompile ds.enable_sleep ds.load_in_4bit ds.overlap_comm ds.packing_samples "
        "ds.use_liger_kernel ds.use_universal_ckpt ref.offload reward.normalize_enable reward.offload "
        "train.async_enable train.colocate_actor_ref train.colocate_all train.colocate_critic_reward "
        "train.dynamic_batch_enable train.enable_ema train.full_determinism_enable train.partial_rollout_enable use_ms "
        "vllm.enable_prefix_caching vllm.enable_sleep vllm.enforce_eager vllm.sync_with_ray"
    ),
}
"""Options without dashes, by what they take: `switch`, or the type of their values and how many there are."""
TAKES: dict[str, str] = {flag: takes for takes, flags in _BY_VALUE.items() for flag in flags.split()}
"""What follows each option."""
