BEGIN TRANSACTION;
CREATE TABLE toolcrib_approvals (
                number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, thread TEXT NOT NULL,
                rule TEXT NOT NULL, given_by TEXT NOT NULL, expires_at BIGINT NOT NULL, body BLOB NOT NULL);
CREATE TABLE toolcrib_calls (
                number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, call_id TEXT NOT NULL, tool TEXT NOT NULL,
                principal TEXT NOT NULL, profile TEXT NOT NULL, thread TEXT NOT NULL, status TEXT NOT NULL, code TEXT,
                pending TEXT, decision TEXT, rule TEXT, answered_by TEXT, traceparent TEXT, repairs BIGINT NOT NULL,
                arguments_bytes BIGINT, result_bytes BIGINT, read_only BIGINT NOT NULL, started_at BIGINT NOT NULL,
                duration_us BIGINT, owner TEXT NOT NULL, lost_after BIGINT NOT NULL, size_bytes BIGINT NOT NULL,
                content BLOB, repeated BIGINT NOT NULL DEFAULT 0);
INSERT INTO "toolcrib_calls" VALUES(1,'run_b742e9079ab7aff3','call_4292178202498827025','weather','key:alice','default','default','pending',NULL,'authorization','allow','default',NULL,NULL,0,16,180,0,1795905408331608,64086,'2f3194b77c0a3410',1795905438397138,300,NULL,0);
INSERT INTO "toolcrib_calls" VALUES(2,'run_5fa39752553aa811','call_824420373036850519','weather','local','default','default','success',NULL,NULL,'allow','default',NULL,NULL,0,16,12,1,1795905411265215,13122,'835ae6c9e21766d3',1795905441278409,300,NULL,0);
INSERT INTO "toolcrib_calls" VALUES(3,'run_23a760ad4608e58d','call_4848943329931361874','delete','key:alice','default','default','pending',NULL,'approval','ask','rule 1',NULL,NULL,0,17,124,0,1795905413892749,69980,'29ae91112514a2d2',1795905443963494,300,NULL,0);
INSERT INTO "toolcrib_calls" VALUES(4,'run_8ee7b5a595559935','call_7603432392821132232','delete','key:alice','default','default','pending',NULL,'approval','ask','rule 1',NULL,NULL,0,17,124,0,1795905416533746,53358,'78d5dbeb24133ad6',1795905446590158,300,NULL,0);
CREATE TABLE toolcrib_events (
                number INTEGER PRIMARY KEY AUTOINCREMENT, chain TEXT NOT NULL, position BIGINT NOT NULL, at BIGINT NOT NULL,
                principal TEXT, fields TEXT, hash TEXT NOT NULL, stub BIGINT, signature TEXT,
                UNIQUE (chain, position));
INSERT INTO "toolcrib_events" VALUES(1,'2d00d7d89d36d3a5',1,1795905408388319,'key:alice','{"kind":"asked","id":"pending_1EDD_1sPvzf-7EWvInMm_g","tool":"weather","thread":"default","question":"authorization","digest":"2c4f481962bcee8038b3c7ba411f24e0"}','a67e1bd0592ccce79f0cc20a72738e62f1474c1838f36d6e31fbda5ff41a22a1',NULL,NULL);
INSERT INTO "toolcrib_events" VALUES(2,'',1,1795905408389599,NULL,'{"kind":"checkpoint","chain":"2d00d7d89d36d3a5","position":1,"head":"a67e1bd0592ccce79f0cc20a72738e62f1474c1838f36d6e31fbda5ff41a22a1"}','bf87e1470b7593424caa13cc30d7b0ebb6bbe2b46e79ab6f028039757a398b9a',NULL,'1dcd05015d32b09ee4aaffa5cea0e9f9df618264f8916ae7cb2dca1a4248209974aef09a6e495e3229e4ae45c4c591ef90eaefd4f3aa68d4024419dd65d7f80c');
INSERT INTO "toolcrib_events" VALUES(3,'2d00d7d89d36d3a5',2,1795905408403040,'key:alice','{"kind":"ended","id":"run_b742e9079ab7aff3","call_id":"call_4292178202498827025","profile":"default","thread":"default","tool":"weather","decision":"allow","rule":"default","arguments":"9730a9c685b7857b265bc7d9c8b48ff2","status":"pending","pending":"authorization","started_at":1795905408331608,"duration_us":64086,"result":"46b5f0c422858251e453fcced232a339"}','c76b9104fbbb97fee5c07af91ae81e42b0d0c92fc01c728d0b80de50f26bbc05',NULL,NULL);
INSERT INTO "toolcrib_events" VALUES(4,'',2,1795905408406857,NULL,'{"kind":"checkpoint","chain":"2d00d7d89d36d3a5","position":2,"head":"c76b9104fbbb97fee5c07af91ae81e42b0d0c92fc01c728d0b80de50f26bbc05"}','09715331769418c7c39bc8f5cc476abbfcc4d58ceacd7d324a2bca825b80dbfa',NULL,'4d5df7326e8c6d58b38947a8bf91ad6c7b962dbced3f8f5b33bc6833378dd6c394d3fc80eb5927695bed5b93f29c0504289b7fbd60fdb4c8568647728f01780f');
INSERT INTO "toolcrib_events" VALUES(5,'9939c0c8fcdc90c3',1,1795905411279662,'local','{"kind":"ended","id":"run_5fa39752553aa811","call_id":"call_824420373036850519","profile":"default","thread":"default","tool":"weather","decision":"allow","rule":"default","arguments":"9730a9c685b7857b265bc7d9c8b48ff2","status":"success","started_at":1795905411265215,"duration_us":13122,"result":"bffcc82afc0bc1df7eb5e81960e5a92c"}','f1316a059d3f36407c205a778ab4f6c3ebe74a7838dc0f0335efad96aba8192a',NULL,NULL);
INSERT INTO "toolcrib_events" VALUES(6,'',3,1795905411280751,NULL,'{"kind":"checkpoint","chain":"9939c0c8fcdc90c3","position":1,"head":"f1316a059d3f36407c205a778ab4f6c3ebe74a7838dc0f0335efad96aba8192a"}','7047656533aa99cf41bb2487bcea9d7572628cf6e2ab6af1f784d72a1fb4483d',NULL,'4ae29c867be793a6b0262666e6027b29bc5d1a9aeea202d1769851903dda2912046903e22252f3aa02d1ffc2964c4b798980af9b81bd6c29eae5e59028e9ba0e');
INSERT INTO "toolcrib_events" VALUES(7,'ea3f2adefde77b32',1,1795905413937538,'key:alice','{"kind":"asked","id":"pending_sLr1wkIrz8S_Uq7rhAwavQ","tool":"delete","thread":"default","question":"approval","digest":"c040e2578f7d2edf6b279e3cbf3da828"}','8099a2fd8015226f1dd029a1ecfe0678f341f65bdbc464105a898ad18d12d194',NULL,NULL);
INSERT INTO "toolcrib_events" VALUES(8,'',4,1795905413943172,NULL,'{"kind":"checkpoint","chain":"ea3f2adefde77b32","position":1,"head":"8099a2fd8015226f1dd029a1ecfe0678f341f65bdbc464105a898ad18d12d194"}','8a987a8c00c915067c3cc1a75b5efaed0e6c69675bbe925896e06a7f9aa95253',NULL,'d0b6b3b1e55419122c9c9602069675e0ddc5b65908b4341dc3975eda753015689aa9a0a7b342f80cd3dfea25fb7e78fab599da3c8e95f791252c4cb7b25c360a');
INSERT INTO "toolcrib_events" VALUES(9,'ea3f2adefde77b32',2,1795905413964729,'key:alice','{"kind":"ended","id":"run_23a760ad4608e58d","call_id":"call_4848943329931361874","profile":"default","thread":"default","tool":"delete","decision":"ask","rule":"rule 1","digest":"c040e2578f7d2edf6b279e3cbf3da828","arguments":"188931dbe6f9665f9e6bb21adf016616","status":"pending","pending":"approval","started_at":1795905413892749,"duration_us":69980,"result":"1f4d882b739f180952190e7532af0123"}','1e144016932b2507f84ed51217b45a6bb3781cd127e88ae63df30db40e06ae13',NULL,NULL);
INSERT INTO "toolcrib_events" VALUES(10,'',5,1795905413970585,NULL,'{"kind":"checkpoint","chain":"ea3f2adefde77b32","position":2,"head":"1e144016932b2507f84ed51217b45a6bb3781cd127e88ae63df30db40e06ae13"}','7e767002b6db7edc6dc4ce43fced43610b76afa4eefacea18833db7ff59602dd',NULL,'893c31dea49e7fa0251da1d3c297f466ab2bef14a638a8455bf73a3468754dbc7ec542fc9e2cb9a3f66fe9af20ae66df633e47d14539f5556aa4ca75eefb220c');
INSERT INTO "toolcrib_events" VALUES(11,'a7cd8aba30137e11',1,1795905416568230,'key:alice','{"kind":"asked","id":"pending_XzieQ_224fvJ7SJnuOZK_g","tool":"delete","thread":"default","question":"approval","digest":"fa42477bf6e539b6c79bb1152272dcfb"}','11bb4796f8dbdfa5ada82359dba3be2d6a8ccdd9fe20c08e9fd54466be973d2e',NULL,NULL);
INSERT INTO "toolcrib_events" VALUES(12,'',6,1795905416569415,NULL,'{"kind":"checkpoint","chain":"a7cd8aba30137e11","position":1,"head":"11bb4796f8dbdfa5ada82359dba3be2d6a8ccdd9fe20c08e9fd54466be973d2e"}','b6cddac50c2a192c0e3c9b874be64fb664fc3f7224eda38d63375ff93e4c9069',NULL,'24282a45d3d4f55bccb1238f238d2a0bf481ec01396d1d062a47ba140ea5dfea6819fdb48f8f54bb28d87bb11316999cbcdc6fcb2323844ec91ff04c95d9650f');
INSERT INTO "toolcrib_events" VALUES(13,'a7cd8aba30137e11',2,1795905416591676,'key:alice','{"kind":"ended","id":"run_8ee7b5a595559935","call_id":"call_7603432392821132232","profile":"default","thread":"default","tool":"delete","decision":"ask","rule":"rule 1","digest":"fa42477bf6e539b6c79bb1152272dcfb","arguments":"495e130554bc9bd95294e3a866373912","status":"pending","pending":"approval","started_at":1795905416533746,"duration_us":53358,"result":"1f4d882b739f180952190e7532af0123"}','225da709ea0eefca3ae387d387356b7c82050c7ebb9e2e53fe74726532568258',NULL,NULL);
INSERT INTO "toolcrib_events" VALUES(14,'',7,1795905416606805,NULL,'{"kind":"checkpoint","chain":"a7cd8aba30137e11","position":2,"head":"225da709ea0eefca3ae387d387356b7c82050c7ebb9e2e53fe74726532568258"}','581c8c3229ac64855c79e6640760804c4c9a2ae217d8cbead381cec73d629dfb',NULL,'0dfa06abf1ee4343d9e6c89684dae097001afd9ebfb58b57cac5124f528854e405c55611419a12f452cba720b2259746b0eaf4f1a3f2e0f33e26ca2878f16507');
INSERT INTO "toolcrib_events" VALUES(15,'8c302db62105c2a4',1,1795905470350113,'key:alice','{"kind":"answered","id":"pending_sLr1wkIrz8S_Uq7rhAwavQ","tool":"delete","thread":"default","question":"approval","decision":"approve","by":"bob","digest":"c040e2578f7d2edf6b279e3cbf3da828"}','94a4ec434054580fe2cf13bd70c72794ae0787e3305ab45f306e301c82efaac3',NULL,NULL);
INSERT INTO "toolcrib_events" VALUES(16,'',8,1795905470351875,NULL,'{"kind":"checkpoint","chain":"8c302db62105c2a4","position":1,"head":"94a4ec434054580fe2cf13bd70c72794ae0787e3305ab45f306e301c82efaac3"}','3380644ef7cdd76642e47f07b9bd05372657a58d7ca11176deceaaa81acf38e6',NULL,'323911a6d69e33ac2d5d9573d4005dbf6fa621f03c93be1846d61328e68cdc21c5583a119bc62ffdaec4f5b19324a0fac88f8b2ba7cf1cfd151e5aba7280d20b');
CREATE TABLE toolcrib_key_names (name TEXT PRIMARY KEY);
CREATE TABLE toolcrib_keys (
                id TEXT PRIMARY KEY, name TEXT NOT NULL, groups TEXT NOT NULL, created_at BIGINT NOT NULL,
                expires_at BIGINT, last_used_at BIGINT, envelope BLOB NOT NULL, origin TEXT);
INSERT INTO "toolcrib_keys" VALUES('w9v8kvtuth8i','alice','[]',1795905405018102,NULL,NULL,X'014BAD1D449B3D933918448EFFAF93B50DBC0E94169168DCBD1904CD6AE983E2AEB6834779EF57CD7911F4784E62767F4B879AF2A33B880D39C874C87FB617D48DA34728A572FEFC0248C5ABAC250499CC7FC9D788E920009A603D836F75A4029B41F2582D85F9C4FE1ACFF004D88A020E2DA601FF',NULL);
CREATE TABLE toolcrib_leases (
                name TEXT PRIMARY KEY, owner TEXT NOT NULL, fence BIGINT NOT NULL, expires_at BIGINT NOT NULL);
CREATE TABLE toolcrib_ledger (
                id TEXT PRIMARY KEY, principal TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL,
                tool TEXT NOT NULL, thread TEXT NOT NULL, idempotent BIGINT NOT NULL, state TEXT NOT NULL,
                owner TEXT NOT NULL, fence BIGINT NOT NULL, lease_until BIGINT NOT NULL, started_at BIGINT NOT NULL,
                expires_at BIGINT NOT NULL, body BLOB NOT NULL, result BLOB, is_task BIGINT NOT NULL DEFAULT 0, run_at BIGINT NOT NULL DEFAULT 0, attempts BIGINT NOT NULL DEFAULT 0, cancelled BIGINT NOT NULL DEFAULT 0, hook_at BIGINT, hook_tries BIGINT NOT NULL DEFAULT 0, definition TEXT NOT NULL DEFAULT '', UNIQUE (principal, key));
CREATE TABLE toolcrib_pendings (
                number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, kind TEXT NOT NULL,
                question TEXT NOT NULL, tool TEXT NOT NULL, principal TEXT NOT NULL, thread TEXT NOT NULL,
                expires_at BIGINT NOT NULL, state TEXT NOT NULL, answered_by TEXT, size_bytes BIGINT NOT NULL,
                body BLOB NOT NULL, answer BLOB, opened_at BIGINT, hook_at BIGINT, hook_tries BIGINT NOT NULL DEFAULT 0);
INSERT INTO "toolcrib_pendings" VALUES(1,'pending_1EDD_1sPvzf-7EWvInMm_g','8782e2c45adc75c8ad6b1652129f1a94833f5b91743472d0b3456d9e9ef42d7a','authorization','','weather','key:alice','default',1795906008346840,'open',NULL,151,X'014BAD1D449B3D933985DE552CAEE27A2ED7A8D20800375188DE608F10791FEECAF24E59BFFDF3968586EEE06D29289385699906F979A4B45C60D6F64A17B2DFC58DF6D2135D4001F1134A8CC6D3B3C7E12463A256C4184716B5375ACC66153AC70AC7C72C9743ED7495FB2DAE4B12FE3DD4CD87F7A49FF711F516BB946FF50A3D63C712483A5C324C7E4533EB313E0C0F772342361FB9E9B423E853E90D719109F44F29D133EA8E719190449289C3CDCCE459786184A419450470E607ABFF434F4AEB43F196794971B8DA03E275D62C97EBD036A7070E331350814838EBFEA44A4B8143DEAB2920282435DF',NULL,1795905408370827,NULL,0);
INSERT INTO "toolcrib_pendings" VALUES(2,'pending_sLr1wkIrz8S_Uq7rhAwavQ','1a9880e26d25622b0a6a8082fddb8dafefd0cfb931fdcbf626f9811777762a0f','approval','','delete','key:alice','default',4795905413917441,'answered','bob',204,X'014BAD1D449B3D9339796F3D0414CA70B58912A496D6E7383D1514FCD23B2197F1E52DB61372BD441D27DD604B632C0ACDC4441E3EAAA6033180F0D7B7A33ED0A4507CAB1DA38FDF1AE42F375C4F31B2E0AD317F1D1EC0639476AF02FA264A22A38CFD3AEDCC281B5E8C979B7EFE22BCB7021567B2939D1EA5E97D8338AB88CB00001D7226FD131102E87DEE8AD5DBA7ED4C69A6E216FF88AD40EC44210939F3DF9ED59F481EC1981B66E997D5C0F6B15D18663EAFB6D968EB355F9849D2270BF54C6B684BF0288326FD3B9710A383A855055E6DC0AC503315995B3B9455BD96E90F05839A3EF018282AC1AC6FD5F7263A37CA2164E3B5F204AC6B063E9CC709ACDEDB2F48493B27A17C3B10628540E7B7648D765152FBD5959D6A0662E86ED224',X'014BAD1D449B3D9339466B9634EC017FDB88A9EAEFF59F5B4B6E05759E8AA622FA2BD75FD28DF39D4749FACE2CFC758851E2850D46798A76B2D3209346799B8754BC6687C3A9172BBD0E7A6A3275F7CBED46577B44E8D212A5AFEBA017FFB97A8A746431B10B03B8',1795905413917441,NULL,0);
INSERT INTO "toolcrib_pendings" VALUES(3,'pending_XzieQ_224fvJ7SJnuOZK_g','9bb43b0b813a91548cb3189e78ff1ab7076602f9a907e8256ce8f43fe1b37f36','approval','','delete','key:alice','default',4795905416550514,'open',NULL,204,X'014BAD1D449B3D93399009063026099AB7C2C93695C51F5B22C9B2793B6599ED65EE42BC19E2A526E1BCA7ACCE43B8C1B196A6F93B57D33DF521C6A63501D7D636B4A6A147E625FB2CFAC3E673A2E912AC8D0C87FB4AF881CDE8FCFDBD3B2E5C872FD5E2C0C7B1ACBF6A38E2F8510E4BE7F8D3514EF432A527CA55F6537AA29D7EFFBCFE6E3AE72C58B9D0762E57156BC1ACB9696528033BE39743BB2901E55C19472B7706ABE497B9BFA7249FB3BCFEA97621BD49FA178FA8461F92A237052C73608FC3CED40669641DF5429C1AC4A0F9482FBE6D3E0D6ADF990C09FA649F779075A08FC7E0705C2D86DFF335E946A1F0973181C6242ED6AAE9450631F6AFBFFF6B10CFD943766CEEB4272821BAE206979B05C6AAF78EA63D77E9F4C18366F2B8',NULL,1795905416550514,NULL,0);
CREATE TABLE toolcrib_rates (name TEXT PRIMARY KEY, principal TEXT NOT NULL, next_at BIGINT NOT NULL);
CREATE TABLE toolcrib_results (
                number INTEGER PRIMARY KEY AUTOINCREMENT, handle TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, thread TEXT NOT NULL,
                tool TEXT NOT NULL, stored_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, size_bytes BIGINT NOT NULL,
                content BLOB NOT NULL);
CREATE TABLE toolcrib_steps (
                task TEXT NOT NULL, principal TEXT NOT NULL, position BIGINT NOT NULL, key TEXT NOT NULL,
                value BLOB NOT NULL, PRIMARY KEY (task, position));
CREATE TABLE toolcrib_task_events (
                number INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT NOT NULL, principal TEXT NOT NULL, event BLOB NOT NULL);
CREATE TABLE toolcrib_versions (room TEXT PRIMARY KEY, version BIGINT NOT NULL);
INSERT INTO "toolcrib_versions" VALUES('store',10);
INSERT INTO "toolcrib_versions" VALUES('events',1);
INSERT INTO "toolcrib_versions" VALUES('keys',2);
INSERT INTO "toolcrib_versions" VALUES('record',4);
CREATE TABLE toolcrib_waits (
                task TEXT NOT NULL, principal TEXT NOT NULL, subject TEXT NOT NULL, PRIMARY KEY (task, subject));
CREATE INDEX toolcrib_pendings_question ON toolcrib_pendings (digest, kind, question);
CREATE INDEX toolcrib_pendings_expiry ON toolcrib_pendings (expires_at);
CREATE INDEX toolcrib_results_caller ON toolcrib_results (principal, thread);
CREATE INDEX toolcrib_results_expiry ON toolcrib_results (expires_at);
CREATE INDEX toolcrib_pendings_principal ON toolcrib_pendings (principal, number, state, size_bytes);
CREATE INDEX toolcrib_ledger_expiry ON toolcrib_ledger (expires_at);
CREATE INDEX toolcrib_ledger_running ON toolcrib_ledger (owner) WHERE state = 'running';
CREATE INDEX toolcrib_ledger_due ON toolcrib_ledger (run_at) WHERE is_task = 1 AND state <> 'ended';
CREATE INDEX toolcrib_task_events_task ON toolcrib_task_events (task, number);
CREATE INDEX toolcrib_waits_subject ON toolcrib_waits (subject);
CREATE INDEX toolcrib_pendings_hook ON toolcrib_pendings (hook_at) WHERE hook_at IS NOT NULL;
CREATE INDEX toolcrib_ledger_hook ON toolcrib_ledger (hook_at) WHERE hook_at IS NOT NULL;
CREATE INDEX toolcrib_ledger_open ON toolcrib_ledger (principal) WHERE is_task = 1 AND state <> 'ended';
CREATE INDEX toolcrib_approvals_caller ON toolcrib_approvals (principal, thread, rule);
CREATE INDEX toolcrib_events_stubs ON toolcrib_events (number) WHERE stub IS NOT NULL;
CREATE INDEX toolcrib_calls_time ON toolcrib_calls (started_at);
CREATE INDEX toolcrib_calls_started ON toolcrib_calls (owner) WHERE status = 'started';
CREATE INDEX toolcrib_calls_principal ON toolcrib_calls (principal, number, size_bytes);
CREATE INDEX toolcrib_calls_spare ON toolcrib_calls (principal, number, size_bytes) WHERE (read_only = 1 OR code IN ('unknown_tool', 'invalid_arguments', 'denied', 'unauthorized', 'limited') OR pending IN ('approval', 'authorization'));
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('toolcrib_pendings',3);
INSERT INTO "sqlite_sequence" VALUES('toolcrib_events',16);
INSERT INTO "sqlite_sequence" VALUES('toolcrib_calls',4);
COMMIT;
