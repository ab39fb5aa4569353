BEGIN TRANSACTION;
CREATE TABLE toolcrib_approvals (
                number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, thread TEXT NOT NULL,
                rule TEXT NOT NULL, given_by TEXT NOT NULL, expires_at BIGINT NOT NULL, body BLOB NOT NULL);
CREATE TABLE toolcrib_authorizations (
                state TEXT PRIMARY KEY, principal TEXT NOT NULL, profile TEXT NOT NULL, provider TEXT NOT NULL,
                handler TEXT NOT NULL, question TEXT NOT NULL, expires_at BIGINT NOT NULL,
                envelope BLOB NOT NULL);
INSERT INTO "toolcrib_authorizations" VALUES('21204d311e1eb5be271e3b0bae55d483b450da589058076f836566574e7492a3','key:alice','default','WEATHER_KEY','secret','9fa1f54107ca81d29df29326d0db099f53d945db87f3d9f740018d7944ad3eb2',1795906008346840,X'0195A904DC099E6EFD7BAE43D34F54C844E6CD88DE7132911A20261997E195EBC13690B26950E7920AABFE7DB89CD5E391473437058DBFF4132632CC9EE6F717FC160F39D2D111701E950A2038CE0AB000D1EFB63E5B46361DED59FD66755A8281875147CF05EC87F6B7A4AA6E9F1D06606048C8B31B827208CE927A4FC11E76E112B3FC68C5FF18D82CDF222802DA629CC35A02B37658F0130D0B38E00F91580B9142E68E1376B6BEDFD932F64611A530C98D44692F48B50E8A7D81006D17F75E895A92E8EE75B793BD86E3FF1D0A76281373C2CD0AE3A5BF62BA9C2772CF4EE870684937B4E3274F92A0DF9BCD2F5D224CA0AB4015D62B1E0FC188FB9C95E7F332FD9E0E28B015802959452E4FE75D163050C3CEFA82AC35C8B8FF95E436E68CF289570178A354B676AD65C94984588D9CFA5D68BD39A4F89DEBC614E58B095DFBC5E51F5CB1F0279C403D6F0150C69AE3CCAD316AE96741130BA2F6B64F8A77AB1B4073E91AF154ED56935C7BC45A85CB5E0BB8ABF4116607B20C5EA59AEF42CB3B167FEB562E2B7A5CBF2D9D7AEB50660C723A3A4CCFF777645A35AEFB0344509C1055074FC679E1397419DE98CDA3C6E33607');
CREATE TABLE toolcrib_events (
                number INTEGER PRIMARY KEY AUTOINCREMENT, chain TEXT NOT NULL, position BIGINT NOT NULL, at BIGINT NOT NULL,
                principal TEXT, fields TEXT, hash TEXT NOT NULL, stub BIGINT, signature TEXT,
                UNIQUE (chain, position));
CREATE TABLE toolcrib_grants (
                principal TEXT NOT NULL, profile TEXT NOT NULL, provider TEXT NOT NULL, handler TEXT NOT NULL,
                version BIGINT NOT NULL, envelope BLOB NOT NULL,
                PRIMARY KEY (principal, profile, provider, handler));
INSERT INTO "toolcrib_grants" VALUES('local','default','WEATHER_KEY','secret',1254394688289474030,X'0195A904DC099E6EFD7BF58831B942401D60296020D1A9901C2540610315A411C909CE2B0E882F38DFFE5D7C06E3F3B4A6B4A0AA406C729F0539FD5A7841BC8B997CABDDAD20D44566F7E4A6040EA0CD9A7B6EC57848A11997BBD83DD708CB6AF2691F07FA643F03C0039B2095A1760A158496D9D4BE062FE9B076E4E2261006FFAE9F5DCEA3239030192B7A483C2F705F12FBDBD73A1794600CAD9F559D49EB7496ABF89B4DC28012782956DBE6A56DF57515FA7FA85369D60099EE547EE496220BEB1406A86DAC232F667CEA22A4F773B2C0');
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
INSERT INTO "toolcrib_versions" VALUES('auth',1);
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
CREATE INDEX toolcrib_authorizations_owner ON toolcrib_authorizations (principal, profile, provider, handler);
DELETE FROM "sqlite_sequence";
COMMIT;
