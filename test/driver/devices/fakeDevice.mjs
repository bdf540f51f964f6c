// A device process without a device, which holds any number of models. The path of a model says what goes wrong.
// `die:N`, `hang:N`, `lose:N`: at the model's N-th micro-batch in the first process; `rest:N`: after its answer;
// `late:N`: the answer waits until the next is asked for; `always`: at every one; `never`. `unopened`: the model never
// loads; `crash`: the process ends while it loads. `deaf`: loading never ends, and nothing is listened to meanwhile.
// `slow:N`: the process says N times that it is still loading. `echo`, `early`: it says what it was sent, and what it
// was to prepare.
import { existsSync, writeFileSync } from 'node:fs';

const PIECES = { tokens: 64, bytes: 1 << 21 };
const READY = {
  kind: 'ready',
  capacity: { score: { T: 128, R: 64 } },
  inFlight: 2,
  stateful: ['step'],
  phases: [],
  pieces: PIECES,
};
/** By number: the fault, at which micro-batch it shows, and how many there were. */
const models = new Map();
const held = [];

function open({ model, request, compiled }, send) {
  const [named, at = 0, marker] = request.model.split(':');
  let fault = named;
  if (marker !== undefined && existsSync(marker)) fault = fault === 'reopen' ? 'unopened' : 'never';
  else if (marker !== undefined) writeFileSync(marker, '');
  models.set(model, { fault, at: Number(at), seen: 0 });
  switch (fault) {
    case 'deaf':
      for (;;);
    case 'crash':
      return process.exit(7);
    case 'echo':
      send({ kind: 'phase', name: `model of ${compiled.length} bytes` });
      return send(READY);
    case 'early': {
      const [, , flag, device = 'nothing'] = process.argv;
      send({ kind: 'phase', name: `prepared ${flag === '--prepare' ? device : 'nothing'}` });
      return send(READY);
    }
    case 'slow':
      for (let said = 0; said < at; said++) send({ kind: 'step', fraction: 0.5 });
      return send(READY);
    case 'unopened':
      return send({
        kind: 'unopened',
        error: { name: 'UserError', message: 'no such model', hint: 'look for it' },
      });
    default:
      send({ kind: 'phase', name: 'load weights' });
      send({ kind: 'step', fraction: 0.25, detail: { done: 1, total: 4, unit: 'bytes' } });
      return send(READY);
  }
}

function ask({ model, id, asked }, send) {
  const { inputs, tokens } = asked.question;
  const of = models.get(model);
  const { fault, at } = of;
  const isAt = of.seen++ === at;
  const answer = (word, ...more) => send({ kind: 'answer', id, of: asked.kind, answer: word }, ...more);
  if (isAt || fault === 'always') {
    if (fault === 'die' || fault === 'always' || fault === 'reopen') process.exit(9);
    if (fault === 'hang') return undefined;
    if (fault === 'lose')
      return process.send({ kind: 'lost', message: 'CUDA_ERROR_ILLEGAL_ADDRESS' }, () => process.exit(3));
    if (fault === 'nan')
      return send({
        kind: 'failed',
        id,
        error: { name: 'NonFiniteError', message: 'bad', where: 'layers.3.ffn.down', rows: [1] },
      });
  }
  if (asked.kind === 'resize') return answer(Math.min(tokens, 100));
  if (asked.kind === 'profile') return answer({ launches: [{ path: 'head', nanoseconds: 5 }] });
  const answered = () => (fault === 'rest' && of.seen === at + 1 ? process.exit(9) : undefined);
  const result = {
    outputs: {
      logProb: Float32Array.from(inputs.row, (r) => -r - 1),
      isArgmax: Int32Array.from(inputs.row, () => 1),
    },
  };
  if (fault === 'late' && isAt) return held.push({ model, give: () => answer(result) });
  for (const each of held.splice(0)) each.give();
  return answer(result, answered);
}

process.on('message', (message) => {
  const { model, kind } = message;
  const send = (word, ...more) => process.send({ ...word, model }, ...more);
  if (kind === 'open') return open(message, send);
  if (kind === 'close') return process.disconnect();
  if (kind === 'unload') {
    // What was asked of it is answered first.
    for (const each of held.splice(0)) each.give();
    models.delete(model);
    return send({ kind: 'unloaded' });
  }
  return ask(message, send);
});
process.on('disconnect', () => process.exit(0));
