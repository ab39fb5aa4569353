// An OpenID provider on loopback: `node server.mjs MODULES PORT CLIENTS`. Prints its issuer when it listens.
// `POST /test/answer` with {"hold_ms", "hold"} delays what the token endpoint does ("before") or answers ("after");
// `GET /test/counts` gives how many grants of each type were given and refused, and what arrived.

import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const [, , modules, port, clients] = process.argv;
const { Provider } = await import(pathToFileURL(`${modules}/oidc-provider/lib/index.js`));
console.info = console.warn = () => {};

const server = createServer();
await new Promise((resolve) => server.listen(Number(port), '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const { lifetime_s: lifetime, list } = JSON.parse(clients);

const provider = new Provider(issuer, {
  extraTokenClaims: (ctx, token) => (token.aud ? { groups: [`of-${token.accountId}`] } : undefined),
  clients: list,
  scopes: ['openid', 'offline_access', 'read', 'write'],
  claims: { openid: ['sub'], groups: ['groups'] },
  conformIdTokenClaims: false,
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, groups: [`of-${id}`] }) }),
  pkce: { required: () => true },
  rotateRefreshToken: true,
  ttl: { AccessToken: lifetime, ClientCredentials: lifetime, AuthorizationCode: 60, DeviceCode: lifetime, Grant: 3600,
    Interaction: 600, RefreshToken: 3600, Session: 600, IdToken: 600 },
  cookies: { keys: ['for these tests'] },
  features: {
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    devInteractions: { enabled: true },
    registration: { enabled: true },
    // Tokens for a resource that a client names are JWTs, and have groups; opaque ones where its address says so.
    resourceIndicators: {
      enabled: true,
      defaultResource: () => undefined,
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, resource) => ({
        scope: 'read write', audience: resource, accessTokenTTL: lifetime,
        accessTokenFormat: resource.endsWith('/opaque') ? 'opaque' : 'jwt',
      }),
    },
    introspection: { enabled: true, allowedPolicy: () => true },
    revocation: { enabled: true, allowedPolicy: () => true },
  },
});

const counts = { arrived: 0, given: {}, refused: {} };
let hold = { hold: '', hold_ms: 0 };
const count = (what, kind) => { what[kind] = (what[kind] ?? 0) + 1; };
provider.on('grant.success', (ctx) => count(counts.given, ctx.oidc.params.grant_type));
provider.on('grant.error', (ctx, error) => count(counts.refused, error.error));
provider.on('server_error', (ctx, error) => process.stderr.write(`${error.stack}\n`));

let release = () => {};
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); release = resolve; });
provider.use(async (ctx, next) => {
  if (ctx.path !== '/token') return next();
  counts.arrived += 1;
  if (hold.hold === 'before') await pause(hold.hold_ms);
  if (ctx.req.socket.destroyed) return; // whoever asked is gone
  await next();
  if (hold.hold === 'after') await pause(hold.hold_ms);
});

const handle = provider.callback();
server.on('request', async (request, response) => {
  if (request.url === '/test/counts') return response.end(JSON.stringify(counts));
  if (request.url === '/test/answer') {
    let body = '';
    for await (const chunk of request) body += chunk;
    hold = JSON.parse(body);
    release();
    return response.end('{}');
  }
  return handle(request, response);
});
console.log(issuer);
