/**
 * Memory behind reserved states on a real device: it comes and goes while another model's kernels run, what stays keeps
 * its values, and nothing is left behind. Prints what changes of it cost.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { compileCudaKernels, emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import { RESERVED_ROWS } from '../../ir/function.js';
import { cudaAvailable, requireCuda } from '../../runtime/cuda/addon.js';
import type { CudaDevice } from '../../runtime/cuda/native.js';
import { openCudaExecutor } from '../../runtime/cuda/openExecutor.js';
import { PACK_SYMBOL } from '../../runtime/cuda/packKernels.js';
import type { Executor } from '../../runtime/executor.js';
import { checkResize, scaleTensor, statePlan, WIDTH } from '../support/statePlan.js';
import { archOf } from './launcher.js';
import { compilerOrReason } from './support.js';

const available = cudaAvailable();
const arch = archOf(available);
const compiler = typeof arch === 'string' ? await compilerOrReason(arch) : arch.reason;
const skip = typeof compiler === 'string' ? compiler : false;

const PIECE = 2 << 20;
/** States of the 8B shape, and bytes of a row of each. */
const STATES = 64;
const ROW_BYTES = 2048;

describe('memory behind reserved states', { skip }, () => {
  if (typeof arch !== 'string') return;
  const plan = statePlan(cudaScheduling, { arch, sharedBytesPerBlock: 99 << 10, multiprocessors: 16 }, RESERVED_ROWS);
  const { kernels, distinct } = emitCudaPlan(plan);

  const open = async (): Promise<Executor> => {
    const { cubins } = await compileCudaKernels({ distinct }, arch);
    const packCubin = cubins.get(PACK_SYMBOL)!;
    return openCudaExecutor({ plan, kernels, cubins, packCubin, tensors: scaleTensor(1), ordinals: [0] });
  };
  const recall = async (executor: Executor, row: number): Promise<number> =>
    (await executor.call('recall', { entry: Int32Array.of(row) })).outputs['found']![0]!;
  const append = (executor: Executor, row: number, value: number): Promise<unknown> =>
    executor.call('append', {
      rows: new Float32Array(WIDTH).fill(value),
      slot: Int32Array.of(row),
      old: Int32Array.of(row),
    });

  it('is there for as many rows as were asked for last', async () => {
    const executor = await open();
    await checkResize(executor);
    await executor.close();
  });

  it('changes 10,000 times beside a model that computes, and is all given back', async () => {
    const device = new (requireCuda().Device)(0);
    try {
      const [still, moving] = [await open(), await open()];
      await Promise.all([still.prepare(), moving.prepare()]);
      const piece = moving.pieces.tokens;
      await still.resize(piece);
      await moving.resize(1);
      await append(moving, 0, 5);
      const before = device.memory().freeBytes;
      let isOver = false;
      let calls = 0;
      const work = (async () => {
        while (!isOver) {
          await append(still, calls % piece, 1);
          calls++;
        }
      })();
      const begin = performance.now();
      for (let i = 0; i < 10_000; i++) {
        const pieces = (i * 7) % 5;
        assert.equal(await moving.resize(Math.max(1, pieces * piece)), Math.max(1, pieces * piece));
        if (i % 500 === 499 && pieces > 0) {
          assert.equal(await recall(moving, 0), 5);
          assert.equal(await recall(moving, pieces * piece - 1), 0);
        }
      }
      const seconds = (performance.now() - begin) / 1000;
      await moving.resize(1);
      isOver = true;
      await work;
      console.log(`10,000 changes of memory in ${seconds.toFixed(1)} s, beside ${calls} calls of another model`);
      const values = [...Array(Math.min(16, calls)).keys()].map((row) => recall(still, row));
      assert.ok((await Promise.all(values)).every((value) => value >= 1));
      // The driver keeps tables of its own, which do not grow with the number of changes.
      assert.ok(before - device.memory().freeBytes < 64 << 20, 'memory was left behind');
      await still.close();
      await moving.close();
    } finally {
      device.release();
    }
  });

  it('costs little to map and to give up', async () => {
    const addon = requireCuda();
    const device = new addon.Device(0);
    const memories = Array.from({ length: STATES }, () => new addon.Memory(device, RESERVED_ROWS * ROW_BYTES, PIECE));
    const timed = async (what: string, bytes: number): Promise<void> => {
      const begin = performance.now();
      for (const memory of memories) assert.equal(await memory.map(bytes), bytes);
      const milliseconds = performance.now() - begin;
      console.log(`${what}: ${milliseconds.toFixed(2)} ms, ${((milliseconds / STATES) * 1000).toFixed(0)} µs a state`);
    };
    try {
      const free = (of: CudaDevice): number => of.memory().freeBytes;
      await timed(`map the first piece of ${STATES} states`, PIECE);
      const before = free(device);
      await timed(`map one more piece of ${STATES} states`, 2 * PIECE);
      assert.ok(before - free(device) >= STATES * PIECE, 'a piece has its bytes');
      await timed(`map 16 more pieces of ${STATES} states`, 18 * PIECE);
      memories[0]!.write(17 * PIECE, Float32Array.of(3));
      assert.equal(new Float32Array(memories[0]!.read(17 * PIECE, 4))[0], 3);
      await timed(`give up 16 pieces of ${STATES} states`, 2 * PIECE);
      assert.throws(() => memories[0]!.read(17 * PIECE, 4), /there is memory behind the first/);
      await timed(`map them again`, 18 * PIECE);
      assert.equal(new Float32Array(memories[0]!.read(17 * PIECE, 4))[0], 0);
    } finally {
      for (const memory of memories) memory.release();
      device.release();
    }
  });
});
