// A device process without a device. The request's model says what goes wrong. `die:N`, `hang:N`, `lose:N`: at the N-th
// micro-batch of the first process; `rest:N`: after its answer; `always`: at every one; `never`. `unopened`: the model
// never loads. `deaf`: loading never ends, and nothing is listened to meanwhile. `slow:N`: the process says N times
// that it is still loading. `echo`, `early`: the process says what it was sent, and what it was to prepare.
import { existsSync, writeFileSync } from 'node:fs';

const READY = { kind: 'ready', capacity: { score: { T: 128, R: 64 } }, inFlight: 2, stateful: ['step'], phases: [] };
let [fault, at] = ['never', 0];
let seen = 0;
process.on('message', (message) => {
  const send = (word, ...more) => process.send({ ...word, model: message.model }, ...more);
  if (message.kind === 'open') {
    const [named, number = 0, marker] = message.request.model.split(':');
    [fault, at] = [named, Number(number)];
    if (marker !== undefined && existsSync(marker)) fault = fault === 'reopen' ? 'unopened' : 'never';
    else if (marker !== undefined) writeFileSync(marker, '');
    if (fault === 'deaf') for (;;);
    if (fault === 'echo') {
      send({ kind: 'phase', name: `model of ${message.compiled.length} bytes` });
      return send(READY);
    }
    if (fault === 'early') {
      const [, , flag, device = 'nothing'] = process.argv;
      send({ kind: 'phase', name: `prepared ${flag === '--prepare' ? device : 'nothing'}` });
      return send(READY);
    }
    if (fault === 'slow') {
      for (let said = 0; said < at; said++) send({ kind: 'step', fraction: 0.5 });
      return send(READY);
    }
    if (fault === 'unopened')
      return send({
        kind: 'unopened',
        error: { name: 'UserError', message: 'no such model', hint: 'look for it' },
      });
    send({ kind: 'phase', name: 'load weights' });
    send({ kind: 'step', fraction: 0.25, detail: { done: 1, total: 4, unit: 'bytes' } });
    return send(READY);
  }
  if (message.kind === 'close') return process.disconnect();
  const { id, asked } = message;
  const { inputs } = asked.question;
  if (seen++ === at || fault === 'always') {
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
  if (asked.kind === 'profile')
    return send({ kind: 'answer', id, of: 'profile', answer: { launches: [{ path: 'head', nanoseconds: 5 }] } });
  const answered = () => (fault === 'rest' && seen === at + 1 ? process.exit(9) : undefined);
  const result = {
    kind: 'answer',
    id,
    of: 'call',
    answer: {
      outputs: {
        logProb: Float32Array.from(inputs.row, (r) => -r - 1),
        isArgmax: Int32Array.from(inputs.row, () => 1),
      },
    },
  };
  return send(result, answered);
});
process.on('disconnect', () => process.exit(0));
