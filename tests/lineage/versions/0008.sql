BEGIN TRANSACTION;
CREATE TABLE blobs (
	sha256 VARCHAR NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	data BLOB NOT NULL, 
	CONSTRAINT pk_blobs PRIMARY KEY (sha256)
);
INSERT INTO "blobs" VALUES('999ec99f49e07555290ff8988896a66666daf72baaf85fe5f9cf40150f4d3920',170,X'28B52FFD20AAB50200E245131890A7E9F6BF34134C0D0234DB720775E3F8396D974DEEB40409424DE1456B1D5F82E055A9A1557CE643085C709686AAF319336019836F966D97331346C14E0ABE531E3DF452F066E1B49946020100CF515706');
CREATE TABLE changes (
	run_id VARCHAR NOT NULL, 
	step INTEGER NOT NULL, 
	role VARCHAR NOT NULL, 
	path VARCHAR NOT NULL, 
	old_sha256 TEXT NOT NULL, 
	sha256 TEXT NOT NULL, 
	text_sha256 VARCHAR, 
	accepted FLOAT NOT NULL, 
	CONSTRAINT pk_changes PRIMARY KEY (run_id, step, role, path), 
	CONSTRAINT fk_changes_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE checkpoints (
	run_id VARCHAR NOT NULL, 
	step INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	sha256 TEXT NOT NULL, 
	saved FLOAT NOT NULL, dropped FLOAT, 
	CONSTRAINT pk_checkpoints PRIMARY KEY (run_id, step), 
	CONSTRAINT fk_checkpoints_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE collections (
	run_id VARCHAR NOT NULL, 
	phase VARCHAR NOT NULL, 
	step INTEGER NOT NULL, 
	num_trajectories INTEGER NOT NULL, 
	num_tokens BIGINT NOT NULL, 
	num_sampled BIGINT NOT NULL, 
	num_calls INTEGER NOT NULL, 
	CONSTRAINT pk_collections PRIMARY KEY (run_id, phase, step), 
	CONSTRAINT fk_collections_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "collections" VALUES('old','train',1,2,40,16,6);
INSERT INTO "collections" VALUES('old','train',2,2,40,16,6);
CREATE TABLE costs (
	run_id VARCHAR NOT NULL, 
	phase VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	usage TEXT NOT NULL, 
	CONSTRAINT pk_costs PRIMARY KEY (run_id, phase, kind, name), 
	CONSTRAINT fk_costs_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "costs" VALUES('old','train','tool','search','{"requests": 4, "cost_usd": 0.5}');
CREATE TABLE evaluations (
	run_id VARCHAR NOT NULL, 
	step INTEGER NOT NULL, 
	mode VARCHAR NOT NULL, 
	metrics TEXT NOT NULL, 
	finished FLOAT NOT NULL, 
	CONSTRAINT pk_evaluations PRIMARY KEY (run_id, step, mode), 
	CONSTRAINT fk_evaluations_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	run_id VARCHAR NOT NULL, 
	time FLOAT NOT NULL, 
	level TEXT NOT NULL, 
	text TEXT NOT NULL, 
	data TEXT NOT NULL, 
	CONSTRAINT pk_events PRIMARY KEY (id), 
	CONSTRAINT fk_events_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE exports (
	run_id VARCHAR NOT NULL, 
	path VARCHAR NOT NULL, 
	kind TEXT NOT NULL, 
	step INTEGER NOT NULL, 
	sha256 TEXT NOT NULL, 
	made FLOAT NOT NULL, 
	CONSTRAINT pk_exports PRIMARY KEY (run_id, path), 
	CONSTRAINT fk_exports_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE files (
	run_id VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	path VARCHAR NOT NULL, 
	sha256 TEXT NOT NULL, text_sha256 VARCHAR, 
	CONSTRAINT pk_files PRIMARY KEY (run_id, role, path), 
	CONSTRAINT fk_files_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "files" VALUES('old','spec','specs/search.yaml','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',NULL);
INSERT INTO "files" VALUES('old','tool','tools/s.yaml','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',NULL);
CREATE TABLE notes (
	id INTEGER NOT NULL, 
	run_id VARCHAR NOT NULL, 
	time FLOAT NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_notes PRIMARY KEY (id), 
	CONSTRAINT fk_notes_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE parse_failures (
	trajectory_ref INTEGER NOT NULL, 
	turn INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	message TEXT NOT NULL, 
	raw TEXT NOT NULL, 
	raw_start INTEGER NOT NULL, 
	structural BOOLEAN NOT NULL, 
	CONSTRAINT pk_parse_failures PRIMARY KEY (trajectory_ref, turn, position), 
	CONSTRAINT fk_parse_failures_trajectory_ref FOREIGN KEY(trajectory_ref) REFERENCES trajectories (id) ON DELETE CASCADE
);
INSERT INTO "parse_failures" VALUES(1,1,0,'bad_json','no JSON','{',3,0);
INSERT INTO "parse_failures" VALUES(2,1,0,'bad_json','no JSON','{',3,0);
INSERT INTO "parse_failures" VALUES(3,1,0,'bad_json','no JSON','{',3,0);
INSERT INTO "parse_failures" VALUES(4,1,0,'bad_json','no JSON','{',3,0);
CREATE TABLE payloads (
	trajectory_ref INTEGER NOT NULL, 
	data BLOB NOT NULL, 
	CONSTRAINT pk_payloads PRIMARY KEY (trajectory_ref), 
	CONSTRAINT fk_payloads_trajectory_ref FOREIGN KEY(trajectory_ref) REFERENCES trajectories (id) ON DELETE CASCADE
);
INSERT INTO "payloads" VALUES(1,X'28B52FFD60AD009D0800B24F3937508DD21884B42AAA0A40A3D10610A3A7499AC0D38C0331736AAFF7A2F3EFDA6324C361F64064934D36D9DA4829442325351558FBC94E0118A02C1491A0394D684CA28A1329A4114970306EE126E96E1B27A98C5DEDE69CDB426DE16EED565BAE56CAD5B89D36E52EAC907E20486ECC22C40836B4CA8D54D6C9AD563BC965F160340A41388C4A25D40683144E283F9F02EC443251A0B08B4EAAB3CA5448561C869595769DA8403C062A81858F91800191118C87E3BDFF0BE031A43FE4DF788BC95B99C720FC05E557F897FAABE35FC63F8BB71AFEA5FCC5E32D8DB764FE7AF84BC99FB10211005D86836E654484AB888E1FC25E426884624B04B580B36166313689410880F0998473245836640FCE0C');
INSERT INTO "payloads" VALUES(2,X'28B52FFD60AC0085080092CF3837508DD21848B40042408ACF09D30D80A8CA732C767973608F9A23308FDFAF01120E02A99667B37BEFBDB5DA60326913AD88A23542084901169F4C28E2E08292B89C442A542974118D1A36CD3E2A2B9D134259B7721B39E93EB96F77B9B8B04ABA59CAD528E5EEDBBCEA799FB83003DF56D0A9959B92D344CD8C3B77D20C34209142102092C994EA6CAFBEF9A2C7C3D950A513456AAB00B170B0024023AC898B56A7B040F148C0C8E8460F08DDD33861613600AEEB3F1B786DF55AF75AC9575A4F593DA6FA1D3EFBF83B4F09F98CE43193CF305FE9788DE02F86AF707E91D7047E0B1611005B8683CECA80A944E822B08110BAA3D812412DE06CB8AA189BC4200440F84CC239122C1BB2076706');
INSERT INTO "payloads" VALUES(3,X'28B52FFD60AD009D0800B24F3937508DD21884B42AAA0A40A3D10610A3A7499AC0D38C0331736AAFF7A2F3EFDA6324C361F64064934D36D9DA4829442325351558FBC94E0118A02C1491A0394D684CA28A1329A4114970306EE126E96E1B27A98C5DEDE69CDB426DE16EED565BAE56CAD5B89D36E52EAC907E20486ECC22C40836B4CA8D54D6C9AD563BC965F160340A41388C4A25D40683144E283F9F02EC443251A0B08B4EAAB3CA5448561C869595769DA8403C062A81858F91800191118C87E3BDFF0BE031A43FE4DF788BC95B99C720FC05E557F897FAABE35FC63F8BB71AFEA5FCC5E32D8DB764FE7AF84BC99FB10211005D86836E654484AB888E1FC25E426884624B04B580B36166313689410880F0998473245836640FCE0C');
INSERT INTO "payloads" VALUES(4,X'28B52FFD60AC0085080092CF3837508DD21848B40042408ACF09D30D80A8CA732C767973608F9A23308FDFAF01120E02A99667B37BEFBDB5DA60326913AD88A23542084901169F4C28E2E08292B89C442A542974118D1A36CD3E2A2B9D134259B7721B39E93EB96F77B9B8B04ABA59CAD528E5EEDBBCEA799FB83003DF56D0A9959B92D344CD8C3B77D20C34209142102092C994EA6CAFBEF9A2C7C3D950A513456AAB00B170B0024023AC898B56A7B040F148C0C8E8460F08DDD33861613600AEEB3F1B786DF55AF75AC9575A4F593DA6FA1D3EFBF83B4F09F98CE43193CF305FE9788DE02F86AF707E91D7047E0B1611005B8683CECA80A944E822B08110BAA3D812412DE06CB8AA189BC4200440F84CC239122C1BB2076706');
CREATE TABLE rlf_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT rlf_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "rlf_version" VALUES('0008');
CREATE TABLE runs (
	id VARCHAR NOT NULL, 
	name TEXT NOT NULL, 
	status TEXT NOT NULL, 
	started FLOAT NOT NULL, 
	finished FLOAT, 
	engine TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	parent_id VARCHAR, 
	parent_kind VARCHAR, 
	"plan" TEXT NOT NULL, 
	plan_hash TEXT NOT NULL, 
	code_version TEXT NOT NULL, 
	host TEXT NOT NULL, 
	packages TEXT NOT NULL, 
	command TEXT NOT NULL, 
	folder TEXT NOT NULL, 
	error TEXT, 
	last_step INTEGER NOT NULL, 
	pid INTEGER NOT NULL, 
	node TEXT NOT NULL, 
	boot TEXT NOT NULL, 
	pid_ticks BIGINT NOT NULL, patch_sha256 VARCHAR, parent_step INTEGER, home TEXT, cwd TEXT, owner VARCHAR, heartbeat FLOAT, idle_s FLOAT, 
	CONSTRAINT pk_runs PRIMARY KEY (id)
);
INSERT INTO "runs" VALUES('old','search','running',1700000000.0,NULL,'local',7,NULL,NULL,'{"train":{"steps":3}}','pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp','0.1.0+abc','{"name":"here","cores":2}','{"torch":"2.13.0"}','rlf run specs/search.yaml','/runs/x',NULL,2,12345,'here','b',1,NULL,NULL,NULL,NULL,'00112233aabbccdd',1700000010.0,0.0);
CREATE TABLE scores (
	trajectory_ref INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	term TEXT NOT NULL, 
	value FLOAT, 
	weight FLOAT NOT NULL, 
	reason TEXT NOT NULL, 
	elapsed_s FLOAT NOT NULL, state VARCHAR, turn_values TEXT, usage TEXT, 
	CONSTRAINT pk_scores PRIMARY KEY (trajectory_ref, position), 
	CONSTRAINT fk_scores_trajectory_ref FOREIGN KEY(trajectory_ref) REFERENCES trajectories (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "scores" VALUES(1,0,'exact_match',1.0,1.0,'equal',0.001,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(1,1,'judge',NULL,0.5,'no answer',0.0,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(2,0,'exact_match',1.0,1.0,'equal',0.001,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(2,1,'judge',NULL,0.5,'no answer',0.0,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(3,0,'exact_match',1.0,1.0,'equal',0.001,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(3,1,'judge',NULL,0.5,'no answer',0.0,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(4,0,'exact_match',1.0,1.0,'equal',0.001,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(4,1,'judge',NULL,0.5,'no answer',0.0,NULL,NULL,NULL);
CREATE TABLE steps (
	run_id VARCHAR NOT NULL, 
	step INTEGER NOT NULL, 
	metrics TEXT NOT NULL, 
	finished FLOAT NOT NULL, 
	CONSTRAINT pk_steps PRIMARY KEY (run_id, step), 
	CONSTRAINT fk_steps_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "steps" VALUES('old',1,'{"reward":0.5,"kl":0.1}',1700000005.0);
INSERT INTO "steps" VALUES('old',2,'{"reward":1.0,"kl":0.1}',1700000005.0);
CREATE TABLE tags (
	run_id VARCHAR NOT NULL, 
	tag VARCHAR NOT NULL, 
	CONSTRAINT pk_tags PRIMARY KEY (run_id, tag), 
	CONSTRAINT fk_tags_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE tool_calls (
	trajectory_ref INTEGER NOT NULL, 
	turn INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	arguments TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	text TEXT NOT NULL, 
	attempts TEXT NOT NULL, 
	queue_s FLOAT NOT NULL, 
	run_s FLOAT NOT NULL, 
	cached BOOLEAN NOT NULL, 
	truncated BOOLEAN NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	isolation TEXT NOT NULL, text_sha256 VARCHAR, original_sha256 VARCHAR, coerced BOOLEAN, usage TEXT, structured TEXT, images TEXT, "inner" TEXT, 
	CONSTRAINT pk_tool_calls PRIMARY KEY (trajectory_ref, turn, position), 
	CONSTRAINT fk_tool_calls_trajectory_ref FOREIGN KEY(trajectory_ref) REFERENCES trajectories (id) ON DELETE CASCADE
);
INSERT INTO "tool_calls" VALUES(1,0,0,'search','{"query":"q 0.3101475693193326","k":3}','ok','nlheigmfijoiel eopmo','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(1,1,0,'search','{"query":"q 0.8676027754927809","k":3}','ok','okibh opinemjalgnkai','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(1,2,0,'search','{"query":"q 0.5876170641754364","k":3}','ok','fndjepmhbfiobjljmjp ','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(2,0,0,'search','{"query":"q 0.0254458609934608","k":3}','ok','cnleihkmbanhlahldpoa','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(2,1,0,'search','{"query":"q 0.12088995980580641","k":3}','ok','ogdhadhidddheanj dpn','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(2,2,0,'search','{"query":"q 0.3747030205016403","k":3}','ok','llohnkfjoni aemhcjkk','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(3,0,0,'search','{"query":"q 0.3101475693193326","k":3}','ok','nlheigmfijoiel eopmo','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(3,1,0,'search','{"query":"q 0.8676027754927809","k":3}','ok','okibh opinemjalgnkai','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(3,2,0,'search','{"query":"q 0.5876170641754364","k":3}','ok','fndjepmhbfiobjljmjp ','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(4,0,0,'search','{"query":"q 0.0254458609934608","k":3}','ok','cnleihkmbanhlahldpoa','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(4,1,0,'search','{"query":"q 0.12088995980580641","k":3}','ok','ogdhadhidddheanj dpn','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(4,2,0,'search','{"query":"q 0.3747030205016403","k":3}','ok','llohnkfjoni aemhcjkk','[["timeout",0.1,"slow"],["ok",0.2,null]]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE tool_totals (
	run_id VARCHAR NOT NULL, 
	phase VARCHAR NOT NULL, 
	step INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	outcome VARCHAR NOT NULL, 
	num_calls INTEGER NOT NULL, 
	num_cached INTEGER NOT NULL, 
	num_truncated INTEGER NOT NULL, 
	run_s FLOAT NOT NULL, 
	max_run_s FLOAT NOT NULL, 
	queue_s FLOAT NOT NULL, 
	CONSTRAINT pk_tool_totals PRIMARY KEY (run_id, phase, step, name, outcome), 
	CONSTRAINT fk_tool_totals_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "tool_totals" VALUES('old','train',1,'search','ok',6,6,6,1.79999999999999982236e+00,0.3,0.06);
INSERT INTO "tool_totals" VALUES('old','train',2,'search','ok',6,6,6,1.79999999999999982236e+00,0.3,0.06);
CREATE TABLE trajectories (
	id INTEGER NOT NULL, 
	run_id VARCHAR NOT NULL, 
	phase VARCHAR NOT NULL, 
	step INTEGER NOT NULL, 
	k INTEGER NOT NULL, 
	trajectory_id TEXT NOT NULL, 
	task_id TEXT NOT NULL, 
	sample_index INTEGER NOT NULL, 
	kind TEXT, 
	stop TEXT NOT NULL, 
	error TEXT, 
	answer TEXT, 
	gold TEXT NOT NULL, 
	reward FLOAT, 
	success FLOAT, 
	advantage FLOAT, 
	num_tokens INTEGER NOT NULL, 
	num_sampled INTEGER NOT NULL, 
	num_turns INTEGER NOT NULL, 
	num_calls INTEGER NOT NULL, 
	duration_s FLOAT NOT NULL, task_sha256 VARCHAR, 
	CONSTRAINT pk_trajectories PRIMARY KEY (id), 
	CONSTRAINT fk_trajectories_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	CONSTRAINT uq_trajectories_run_id_phase_step_k UNIQUE (run_id, phase, step, k)
);
INSERT INTO "trajectories" VALUES(1,'old','train',1,0,'t0','q0',0,'two_hop','answered',NULL,'Ada','["Ada"]',1.0,1.0,0.5,20,8,4,3,0.5,'999ec99f49e07555290ff8988896a66666daf72baaf85fe5f9cf40150f4d3920');
INSERT INTO "trajectories" VALUES(2,'old','train',1,1,'t1','q0',1,'two_hop','answered',NULL,'Ada','["Ada"]',1.0,1.0,0.5,20,8,4,3,0.5,'999ec99f49e07555290ff8988896a66666daf72baaf85fe5f9cf40150f4d3920');
INSERT INTO "trajectories" VALUES(3,'old','train',2,0,'t0','q0',0,'two_hop','answered',NULL,'Ada','["Ada"]',1.0,1.0,0.5,20,8,4,3,0.5,'999ec99f49e07555290ff8988896a66666daf72baaf85fe5f9cf40150f4d3920');
INSERT INTO "trajectories" VALUES(4,'old','train',2,1,'t1','q0',1,'two_hop','answered',NULL,'Ada','["Ada"]',1.0,1.0,0.5,20,8,4,3,0.5,'999ec99f49e07555290ff8988896a66666daf72baaf85fe5f9cf40150f4d3920');
CREATE INDEX ix_runs_started ON runs (started);
CREATE INDEX ix_events_run_id_id ON events (run_id, id);
CREATE INDEX ix_notes_run_id ON notes (run_id);
CREATE INDEX ix_trajectories_run_id_reward ON trajectories (run_id, reward);
CREATE INDEX ix_trajectories_run_id_advantage ON trajectories (run_id, advantage);
CREATE INDEX ix_trajectories_run_id_task_id_step ON trajectories (run_id, task_id, step);
CREATE INDEX ix_trajectories_failed ON trajectories (run_id, phase, step, k) WHERE coalesce(success, 0.0) < 1.0;
CREATE INDEX ix_tool_calls_failed ON tool_calls (name, outcome) WHERE outcome <> 'ok';
CREATE INDEX ix_tool_calls_inner ON tool_calls (trajectory_ref) WHERE inner IS NOT NULL;
COMMIT;
