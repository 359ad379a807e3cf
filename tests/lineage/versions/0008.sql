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
	saved FLOAT NOT NULL, 
	dropped FLOAT, 
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
	sha256 TEXT NOT NULL, 
	text_sha256 VARCHAR, 
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
INSERT INTO "payloads" VALUES(1,X'28B52FFD609D01AD0A0066924439408DD3010F0E73B33CC2AFAE9098710C687D94CE03673897B15D9812D738A67A49C1E2F749CBC3AAB5BDDB8DEC3A3D0A023D8231263222BB532E00390036001EFF31FE8AC84FB9FC96839F22F99FF04BD25F69FCD2E297A19FC2F0CB929FDAF829177FE5F2579E9F0AF97FA1025AD79FF06B8B769D472FE31635748DC37122B76843DA9C2E13909366E1E4945523A50E4E41494081C31430F061B27032A4FCFF0AE0B784FF036D4DECC2BAC69D0F9488F0705B4D90A9974EACD2ABD9995D8EDA0B330041EFA1038A62CE74D739F4E5B66A271441D9A3183FEC11DB0A2387CBFB20603008337E1538F4301F84C6DA8DD6B96D96568A7197D3346D9BD9BCDCCCA6BDB7DA8B4D2ED3E89CB75A238A4151CC011A00C4D6084013400F5EA6003B41C094B6B76CB39D8D6185FCE35C7E5010240659F4A10C64E691A056EB662B6EAD997ADB24062100C26712CE9160D9903D3833');
INSERT INTO "payloads" VALUES(2,X'28B52FFD609C019D0A004652443B30C5381D301EC246A9998A02B1D295A61287170B24243450CCD8EE4C6905E4BC6A48A861329B9435287DDA6477DB46B6501790474FBE5A5C229B022C00390035007F3CF92FA7DF52FA2BA2FF0F3F15F2BFF35B467ECAE4AF00F829CD7FF9F863C14F69F82FD97F923F0EFCC7C4FDF1B89655D619DC32EE1144D6D8032D728F44301E2601ADC43491710A17182C200A1A1B21C893104A8E00264D470085F2FF14C11F4B7F0C037333B3C61AD755506CB8651B74EEC56CC5AEEAB215B5D45A9B79D0759B84D67D5FEE74D61983CB2DAFE67DA1BC5D801CF67C2D6D16A488CDF641C8E05006E444D8DB321CC8E1BAAC7A2D6BE7AC975E8C53AD452BA55845E7AD16875AD8AD6AA5947325A9C2DDF7E596341A00C2D6084013400FBCACE1AC00539ADEB2CB7626062B209CCB0F0A82C4208B3E9481CC3C12D46ADD6CC5AD7595DE3689410880F0998473245836640FCE0C');
INSERT INTO "payloads" VALUES(3,X'28B52FFD609D01AD0A0066924439408DD3010F0E73B33CC2AFAE9098710C687D94CE03673897B15D9812D738A67A49C1E2F749CBC3AAB5BDDB8DEC3A3D0A023D8231263222BB532E00390036001EFF31FE8AC84FB9FC96839F22F99FF04BD25F69FCD2E297A19FC2F0CB929FDAF829177FE5F2579E9F0AF97FA1025AD79FF06B8B769D472FE31635748DC37122B76843DA9C2E13909366E1E4945523A50E4E41494081C31430F061B27032A4FCFF0AE0B784FF036D4DECC2BAC69D0F9488F0705B4D90A9974EACD2ABD9995D8EDA0B330041EFA1038A62CE74D739F4E5B66A271441D9A3183FEC11DB0A2387CBFB20603008337E1538F4301F84C6DA8DD6B96D96568A7197D3346D9BD9BCDCCCA6BDB7DA8B4D2ED3E89CB75A238A4151CC011A00C4D6084013400F5EA6003B41C094B6B76CB39D8D6185FCE35C7E5010240659F4A10C64E691A056EB662B6EAD997ADB24062100C26712CE9160D9903D3833');
INSERT INTO "payloads" VALUES(4,X'28B52FFD609C019D0A004652443B30C5381D301EC246A9998A02B1D295A61287170B24243450CCD8EE4C6905E4BC6A48A861329B9435287DDA6477DB46B6501790474FBE5A5C229B022C00390035007F3CF92FA7DF52FA2BA2FF0F3F15F2BFF35B467ECAE4AF00F829CD7FF9F863C14F69F82FD97F923F0EFCC7C4FDF1B89655D619DC32EE1144D6D8032D728F44301E2601ADC43491710A17182C200A1A1B21C893104A8E00264D470085F2FF14C11F4B7F0C037333B3C61AD755506CB8651B74EEC56CC5AEEAB215B5D45A9B79D0759B84D67D5FEE74D61983CB2DAFE67DA1BC5D801CF67C2D6D16A488CDF641C8E05006E444D8DB321CC8E1BAAC7A2D6BE7AC975E8C53AD452BA55845E7AD16875AD8AD6AA5947325A9C2DDF7E596341A00C2D6084013400FBCACE1AC00539ADEB2CB7626062B209CCB0F0A82C4208B3E9481CC3C12D46ADD6CC5AD7595DE3689410880F0998473245836640FCE0C');
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
	pid_ticks BIGINT NOT NULL, 
	patch_sha256 VARCHAR, 
	parent_step INTEGER, 
	home TEXT, 
	cwd TEXT, 
	owner VARCHAR, 
	heartbeat FLOAT, 
	idle_s FLOAT, 
	CONSTRAINT pk_runs PRIMARY KEY (id)
);
INSERT INTO "runs" VALUES('old','search','running',1700000000.0,NULL,'local',7,NULL,NULL,'{"train":{"steps":3}}','pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp','0.1.0+abc','{"name":"here","cores":2}','{"torch":"2.13.0"}','rlf run specs/search.yaml','/home/someone/project',NULL,2,16203,'host','boot',1596132,NULL,NULL,NULL,NULL,NULL,1700000010.0,NULL);
CREATE TABLE scores (
	trajectory_ref INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	term TEXT NOT NULL, 
	value FLOAT, 
	weight FLOAT NOT NULL, 
	reason TEXT NOT NULL, 
	elapsed_s FLOAT NOT NULL, 
	state VARCHAR, 
	turn_values TEXT, 
	usage TEXT, 
	CONSTRAINT pk_scores PRIMARY KEY (trajectory_ref, position), 
	CONSTRAINT fk_scores_trajectory_ref FOREIGN KEY(trajectory_ref) REFERENCES trajectories (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "scores" VALUES(1,0,'exact_match',1.0,1.0,'equal',0.001,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(1,1,'judge',NULL,0.0,'no answer',0.0,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(2,0,'exact_match',1.0,1.0,'equal',0.001,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(2,1,'judge',NULL,0.0,'no answer',0.0,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(3,0,'exact_match',1.0,1.0,'equal',0.001,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(3,1,'judge',NULL,0.0,'no answer',0.0,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(4,0,'exact_match',1.0,1.0,'equal',0.001,NULL,NULL,NULL);
INSERT INTO "scores" VALUES(4,1,'judge',NULL,0.0,'no answer',0.0,NULL,NULL,NULL);
CREATE TABLE steps (
	run_id VARCHAR NOT NULL, 
	step INTEGER NOT NULL, 
	metrics TEXT NOT NULL, 
	finished FLOAT NOT NULL, 
	CONSTRAINT pk_steps PRIMARY KEY (run_id, step), 
	CONSTRAINT fk_steps_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "steps" VALUES('old',1,'{"reward":0.5,"kl":0.1}',1700000010.0);
INSERT INTO "steps" VALUES('old',2,'{"reward":1.0,"kl":0.1}',1700000010.0);
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
	isolation TEXT NOT NULL, 
	text_sha256 VARCHAR, 
	original_sha256 VARCHAR, 
	coerced BOOLEAN, 
	usage TEXT, 
	structured TEXT, 
	images TEXT, 
	"inner" TEXT, 
	CONSTRAINT pk_tool_calls PRIMARY KEY (trajectory_ref, turn, position), 
	CONSTRAINT fk_tool_calls_trajectory_ref FOREIGN KEY(trajectory_ref) REFERENCES trajectories (id) ON DELETE CASCADE
);
INSERT INTO "tool_calls" VALUES(1,0,0,'search','{"query":"q 0.3101475693193326","k":3}','ok','nlheigmfijoiel eopmo','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(1,1,0,'search','{"query":"q 0.8676027754927809","k":3}','ok','okibh opinemjalgnkai','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(1,2,0,'search','{"query":"q 0.5876170641754364","k":3}','ok','fndjepmhbfiobjljmjp ','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(2,0,0,'search','{"query":"q 0.0254458609934608","k":3}','ok','cnleihkmbanhlahldpoa','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(2,1,0,'search','{"query":"q 0.12088995980580641","k":3}','ok','ogdhadhidddheanj dpn','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(2,2,0,'search','{"query":"q 0.3747030205016403","k":3}','ok','llohnkfjoni aemhcjkk','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(3,0,0,'search','{"query":"q 0.3101475693193326","k":3}','ok','nlheigmfijoiel eopmo','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(3,1,0,'search','{"query":"q 0.8676027754927809","k":3}','ok','okibh opinemjalgnkai','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(3,2,0,'search','{"query":"q 0.5876170641754364","k":3}','ok','fndjepmhbfiobjljmjp ','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(4,0,0,'search','{"query":"q 0.0254458609934608","k":3}','ok','cnleihkmbanhlahldpoa','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(4,1,0,'search','{"query":"q 0.12088995980580641","k":3}','ok','ogdhadhidddheanj dpn','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "tool_calls" VALUES(4,2,0,'search','{"query":"q 0.3747030205016403","k":3}','ok','llohnkfjoni aemhcjkk','[{"outcome":"timeout","run_s":0.1,"error":"slow"},{"outcome":"ok","run_s":0.2}]',0.01,0.3,1,1,9999,'thread',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
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
	duration_s FLOAT NOT NULL, 
	task_sha256 VARCHAR, 
	CONSTRAINT pk_trajectories PRIMARY KEY (id), 
	CONSTRAINT uq_trajectories_run_id_phase_step_k UNIQUE (run_id, phase, step, k), 
	CONSTRAINT fk_trajectories_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
INSERT INTO "trajectories" VALUES(1,'old','train',1,0,'t0','q0',0,'two_hop','answered',NULL,'Ada','["Ada"]',1.0,1.0,0.5,20,8,4,3,0.5,'999ec99f49e07555290ff8988896a66666daf72baaf85fe5f9cf40150f4d3920');
INSERT INTO "trajectories" VALUES(2,'old','train',1,1,'t1','q0',1,'two_hop','answered',NULL,'Ada','["Ada"]',1.0,1.0,0.5,20,8,4,3,0.5,'999ec99f49e07555290ff8988896a66666daf72baaf85fe5f9cf40150f4d3920');
INSERT INTO "trajectories" VALUES(3,'old','train',2,0,'t0','q0',0,'two_hop','answered',NULL,'Ada','["Ada"]',1.0,1.0,0.5,20,8,4,3,0.5,'999ec99f49e07555290ff8988896a66666daf72baaf85fe5f9cf40150f4d3920');
INSERT INTO "trajectories" VALUES(4,'old','train',2,1,'t1','q0',1,'two_hop','answered',NULL,'Ada','["Ada"]',1.0,1.0,0.5,20,8,4,3,0.5,'999ec99f49e07555290ff8988896a66666daf72baaf85fe5f9cf40150f4d3920');
CREATE INDEX ix_events_run_id_id ON events (run_id, id);
CREATE INDEX ix_notes_run_id ON notes (run_id);
CREATE INDEX ix_runs_started ON runs (started);
CREATE INDEX ix_tool_calls_failed ON tool_calls (name, outcome) WHERE outcome <> 'ok';
CREATE INDEX ix_tool_calls_inner ON tool_calls (trajectory_ref) WHERE "inner" IS NOT NULL;
CREATE INDEX ix_trajectories_failed ON trajectories (run_id, phase, step, k) WHERE coalesce(success, 0.0) < 1.0;
CREATE INDEX ix_trajectories_run_id_advantage ON trajectories (run_id, advantage);
CREATE INDEX ix_trajectories_run_id_reward ON trajectories (run_id, reward);
CREATE INDEX ix_trajectories_run_id_task_id_step ON trajectories (run_id, task_id, step);
COMMIT;
