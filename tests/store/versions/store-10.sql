BEGIN TRANSACTION;
CREATE TABLE toolcrib_approvals (
                number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, thread TEXT NOT NULL,
                rule TEXT NOT NULL, given_by TEXT NOT NULL, expires_at BIGINT NOT NULL, body BLOB NOT NULL);
CREATE TABLE toolcrib_leases (
                name TEXT PRIMARY KEY, owner TEXT NOT NULL, fence BIGINT NOT NULL, expires_at BIGINT NOT NULL);
INSERT INTO "toolcrib_leases" VALUES('github','me',1,0);
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
INSERT INTO "toolcrib_pendings" VALUES(1,'pending_1','d1','approval','','pay','bob','t',2000000000,'open',NULL,104,X'019B2E390AF01D0C8D6E205DA69403D576C799057200BDF2CED963B23231BFD979D5A2658FDBB98EA936853ABE3A54DA4E7ADA49D164534D8D7324A9373F39F0B18C6972E083E8C023DB781DE48B7EE59E08A988D2D5982D468AD0ABB1E0214AC8B07149AD49FCE9C6B653500B03B7D521ECA0AAB658141830DB4969B480459545F99AF8D3D289BFAD1324629726382F3E599AD239058726AFE32F7F1E7A1DC1305639EA579A688DF8A9E0A9CBA249161E8A50DA9CC84491EA4824B705',NULL,NULL,NULL,0);
INSERT INTO "toolcrib_pendings" VALUES(2,'pending_2','d2','approval','','pay','bob','t',2000000000,'answered','alice',89,X'019B2E390AF01D0C8DE2B4A7433638A23E6CFF3BD000C2AC8D6FFCB2D62D06BE14AEE6944B33DC1C44CA71A6B7610B815731F709D06407646314763117195083D7E086704D00BB837398254E3528FE233BDF7110AA0213DFD1155308C06E4C972319259F917B9E0AD1BCDF346203B8D11853FE313C28CDEC9D06EACF43B6EC492868AC843079B434A3381374D5220982242DC7E6D30F90AF0D300551958BFA842D7B9F018B707C18276BA9786EFC',X'019B2E390AF01D0C8D927EC23A66A3FDC162CFE1017E4C9356016AAF0E43CA95AEC5A9C463E51F11CE31651EC7B3E29BEBE4423D9193A67B3183476E79209671A6C0C05E4352B08F283F8BC1F1CCBBA42746BAA97000002EDECD3EAE8D369D1222A893AA3A506715',NULL,NULL,0);
CREATE TABLE toolcrib_rates (name TEXT PRIMARY KEY, principal TEXT NOT NULL, next_at BIGINT NOT NULL);
CREATE TABLE toolcrib_results (
                number INTEGER PRIMARY KEY AUTOINCREMENT, handle TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, thread TEXT NOT NULL,
                tool TEXT NOT NULL, stored_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, size_bytes BIGINT NOT NULL,
                content BLOB NOT NULL);
INSERT INTO "toolcrib_results" VALUES(1,'result_1','bob','t','list',1000000000,87400000000,9,X'019B2E390AF01D0C8D0B0D16CA2CCA3245C1C3C839B5CD04CE32253270AE3C5F8F6484740AB3969DD97C7BE85A89BF19FEF61EAE8B8FEC5BDDB247C7F23A703AE8944682F0F595E4706D7F8618141871F05712A13A420C290997BCE908ECC0885C04A2CFEBCF2CEBDEA31600D70F5FC9A47515FC73D2E2AB292546E1');
CREATE TABLE toolcrib_steps (
                task TEXT NOT NULL, principal TEXT NOT NULL, position BIGINT NOT NULL, key TEXT NOT NULL,
                value BLOB NOT NULL, PRIMARY KEY (task, position));
CREATE TABLE toolcrib_task_events (
                number INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT NOT NULL, principal TEXT NOT NULL, event BLOB NOT NULL);
CREATE TABLE toolcrib_versions (room TEXT PRIMARY KEY, version BIGINT NOT NULL);
INSERT INTO "toolcrib_versions" VALUES('store',10);
CREATE TABLE toolcrib_waits (
                task TEXT NOT NULL, principal TEXT NOT NULL, subject TEXT NOT NULL, PRIMARY KEY (task, subject));
CREATE INDEX toolcrib_pendings_question ON toolcrib_pendings (digest, kind, question);
CREATE INDEX toolcrib_pendings_expiry ON toolcrib_pendings (expires_at);
CREATE INDEX toolcrib_pendings_principal ON toolcrib_pendings (principal, number, state, size_bytes);
CREATE INDEX toolcrib_results_caller ON toolcrib_results (principal, thread);
CREATE INDEX toolcrib_results_expiry ON toolcrib_results (expires_at);
CREATE INDEX toolcrib_ledger_expiry ON toolcrib_ledger (expires_at);
CREATE INDEX toolcrib_ledger_running ON toolcrib_ledger (owner) WHERE state = 'running';
CREATE INDEX toolcrib_ledger_due ON toolcrib_ledger (run_at) WHERE is_task = 1 AND state <> 'ended';
CREATE INDEX toolcrib_task_events_task ON toolcrib_task_events (task, number);
CREATE INDEX toolcrib_waits_subject ON toolcrib_waits (subject);
CREATE INDEX toolcrib_pendings_hook ON toolcrib_pendings (hook_at) WHERE hook_at IS NOT NULL;
CREATE INDEX toolcrib_ledger_hook ON toolcrib_ledger (hook_at) WHERE hook_at IS NOT NULL;
CREATE INDEX toolcrib_ledger_open ON toolcrib_ledger (principal) WHERE is_task = 1 AND state <> 'ended';
CREATE INDEX toolcrib_approvals_caller ON toolcrib_approvals (principal, thread, rule);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('toolcrib_pendings',2);
INSERT INTO "sqlite_sequence" VALUES('toolcrib_results',1);
COMMIT;
