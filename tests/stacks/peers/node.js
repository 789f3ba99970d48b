// A peer on Node's own http, or https with TLS_CERT and TLS_KEY. A write is over when its callback comes; Node's clock is CLOCK_MONOTONIC.
'use strict';
const fs = require('node:fs');
const http = require('node:http');
const https = require('node:https');
const { setTimeout: sleep } = require('node:timers/promises');

const now = () => Number(process.hrtime.bigint());

// See answer.py, which says what a request's max_tokens asks for.
function plan(method, path, body) {
  const asked = JSON.parse(body || '{}');
  const chat = 'messages' in asked;
  const p = {
    method, path: path.split('?')[0], model: asked.model, streaming: Boolean(asked.stream), tokens: asked.max_tokens || 8,
    status: 200, outcome: 'ok', reason: 'stop',
  };
  if (p.tokens === 3) Object.assign(p, { status: 400, outcome: 'client_4xx', streaming: false });
  else if (p.tokens === 4) Object.assign(p, { status: 500, outcome: 'server_5xx', streaming: false });
  else if (p.tokens === 5 && p.streaming) p.outcome = 'in_band_error';
  else if (p.tokens === 6) Object.assign(p, { outcome: 'content_filter', reason: 'content_filter' });
  else if (p.tokens === 7) Object.assign(p, { outcome: 'empty_output', tokens: 0 });
  const usage = { prompt_tokens: 9, completion_tokens: p.tokens, total_tokens: 9 + p.tokens };
  const choice = (key, text, reason = null) => chat
    ? { index: 0, [key]: { role: 'assistant', content: text }, finish_reason: reason }
    : { index: 0, text, finish_reason: reason };
  const object = (fields) => ({ id: 'cmpl-1', object: 'chat.completion', created: 1, model: p.model, ...fields });
  const event = (fields) => `data: ${JSON.stringify(object(fields))}\n\n`;
  if (!p.streaming) {
    const whole = p.status >= 400
      ? { error: { message: 'no', type: 't', code: p.status } }
      : object({ choices: [choice('message', 'lorem '.repeat(p.tokens), p.reason)], usage });
    p.pieces = [JSON.stringify(whole)];
    return p;
  }
  p.pieces = [event({ choices: [choice('delta', '')] })];
  for (let i = 0; i < p.tokens; i += 1) p.pieces.push(event({ choices: [choice('delta', 'lorem ')] }));
  if (p.outcome === 'in_band_error') p.pieces.push('data: {"error": {"message": "broke"}}\n\n');
  else p.pieces.push(event({ choices: [choice('delta', '', p.reason)] }), event({ choices: [], usage }));
  p.pieces.push('data: [DONE]\n\n');
  return p;
}

// What the answer says of itself, by the names of the agent's records.
function said(p) {
  const api = p.path.endsWith('/chat/completions') ? 'openai.chat' : 'openai.completions';
  if (p.status >= 400) return { api };
  if (p.outcome === 'in_band_error') return { api, tokens_source: p.tokens ? 'chunks' : null };
  return { api, finish_reason: p.reason, tokens_source: 'usage', output_tokens: p.tokens, input_tokens: 9 };
}

async function answer(request, response) {
  let body = '';
  for await (const piece of request) body += piece;
  const p = plan(request.method, request.url, body);
  const content = [];
  let last = null;
  const stamped = async (piece, call) => {
    const before = now();
    await new Promise(call);
    last = [before, now()];
    if (piece.includes('lorem')) content.push(last);
  };
  response.writeHead(p.status, { 'content-type': p.streaming ? 'text/event-stream' : 'application/json' });
  if (p.streaming) {
    for (const piece of p.pieces) {
      await sleep(2);
      await stamped(piece, (done) => response.write(piece, done));
    }
    await stamped('', (done) => response.end(done));
  } else {
    await stamped('', (done) => response.end(p.pieces[0], done));
  }
  fs.appendFileSync(process.env.TRUTH, `${JSON.stringify({
    request_id: request.headers['x-request-id'], method: p.method, path: p.path, model: p.model, status: p.status,
    outcome: p.outcome, streaming: p.streaming, t_first_token_write_ns: content[0] || null, t_last_write_ns: last,
    content_write_ns: content, said: said(p),
  })}\n`);
}

const { TLS_CERT: cert, TLS_KEY: key } = process.env;
const server = cert
  ? https.createServer({ cert: fs.readFileSync(cert), key: fs.readFileSync(key) }, answer)
  : http.createServer(answer);
server.listen(0, '127.0.0.1', 256, () => {
  const file = process.env.PORT_FILE;
  fs.writeFileSync(`${file}.new`, String(server.address().port));
  fs.renameSync(`${file}.new`, file);
});
process.on('SIGTERM', () => { server.close(); server.closeAllConnections(); });
