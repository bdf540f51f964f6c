/** The command lines of the benchmarks: all options of each, defaults, and what is refused. */
import { join } from 'node:path';
import type { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { ablationCommand } from '../../bench/ablation.js';
import { checkpointCommand } from '../../bench/checkpoint.js';
import { parseOptions } from '../../bench/command.js';
import { compileCommand } from '../../bench/compile.js';
import { draftsBenchCommand } from '../../bench/drafts.js';
import { generateCommand, type GenerateBenchOptions, samplingOf } from '../../bench/generate.js';
import { gpuCommand } from '../../bench/gpu.js';
import { cpuCommand } from '../../bench/main.js';
import { maskBenchCommand } from '../../bench/maskBench.js';
import { searchBenchCommand } from '../../bench/search.js';
import { serveGpuCommand } from '../../bench/serveGpu.js';
import { serveLoadCommand } from '../../bench/serveLoad.js';
import { servingCommand } from '../../bench/serving.js';
import { UserError } from '../../errors.js';

const read = (command: () => Command, line: string): object | undefined =>
  parseOptions(
    command(),
    line.split(' ').filter((word) => word !== ''),
  );

const LINES: readonly (readonly [string, () => Command, string, object])[] = [
  [
    'bench',
    cpuCommand,
    '--model mine --precision f32 --isa avx2 --threads 3 --seconds 0.5 --questions 7 --tune 20 --batch-tokens 256 ' +
      '--data q.jsonl --tokenizer words',
    {
      ...{ model: ['mine'], precision: ['f32'], isa: 'avx2', threads: 3, seconds: 0.5, questions: 7, tune: 20 },
      ...{ batchTokens: 256, data: 'q.jsonl', tokenizer: 'words' },
    },
  ],
  [
    'bench:generate',
    generateCommand,
    '--model mine --target cuda --batch 1,4 --prompt 32 --new 8 --threads 3 --isa avx2 --quantize int4 ' +
      '--kv-cache fp8 --spread 0.7 --requests 5 --cache-tokens 4096 --top-p 0.9 --top-k 50 --penalty 1.1 --wait ' +
      '--profile',
    {
      ...{
        model: 'mine',
        target: 'cuda',
        batch: [1, 4],
        prompt: 32,
        new: 8,
        threads: 3,
        isa: 'avx2',
        quantize: 'int4',
      },
      ...{ kvCache: 'fp8', spread: 0.7, requests: 5, cacheTokens: 4096, topP: 0.9, topK: 50, penalty: 1.1 },
      ...{ wait: true, profile: true },
    },
  ],
  [
    'bench:search',
    searchBenchCommand,
    '--shape 1b+8b --target cuda --threads 3 --problems p.jsonl --studies splits,fp8 --method dvts --count 7 --n 8 ' +
      '--width 2 --iterations 5 --step-tokens 30 --seed 2 --gigabytes 1.5 --shares 10,50 --verifier-precision fp8 ' +
      '--replicas 2 --limit 60 --page p.html --json p.json --speculate off',
    {
      ...{
        shape: '1b+8b',
        target: 'cuda',
        threads: 3,
        problems: 'p.jsonl',
        studies: ['splits', 'fp8'],
        method: 'dvts',
      },
      ...{ count: 7, n: 8, width: 2, iterations: 5, stepTokens: 30, seed: 2, gigabytes: 1.5, shares: [10, 50] },
      ...{ speculate: 'off', verifierPrecision: 'fp8', replicas: 2, limit: 60, page: 'p.html', json: 'p.json' },
    },
  ],
  [
    'bench:drafts',
    draftsBenchCommand,
    'a.jsonl b.jsonl --model m --drafters suffix,ngram --tokens 1,15 --beside 64 --limit 9 --prompt-field p ' +
      '--text-field t --temperature 0.7 --seed 3 --json out.json',
    {
      ...{ model: 'm', drafters: ['suffix', 'ngram'], tokens: [1, 15], beside: 64, limit: 9, promptField: 'p' },
      ...{ textField: 't', temperature: 0.7, seed: 3, json: 'out.json' },
    },
  ],
  [
    'bench:masks',
    maskBenchCommand,
    'data --only a --every 8 --json out.json',
    { only: 'a', every: 8, json: 'out.json' },
  ],
  [
    'bench:serve',
    serveLoadCommand,
    '--base-url http://a:1/v1 --model m --api-key k --endpoint chat --requests 7 --rate 2.5 ' +
      '--burstiness inf --ramp linear ' +
      '--ramp-from 2 --max-concurrency 3 --lengths random --spread 0.5 --prompt-tokens 9 --answer-tokens ' +
      '8 --range-ratio 1 ' +
      '--longest 99 --vocab-size 50 --ignore-eos --temperature 1 --no-stream --extra {"n":1} --seed 4 --warm-up 0 ' +
      '--processes 5 --percentiles 50,99.9 --goodput ttft:200,tpot:50 --idle 1 --stalled 2 --aborts 0.5 --pid 3 --json',
    {
      ...{ baseUrl: 'http://a:1/v1', model: 'm', apiKey: 'k', endpoint: 'chat', requests: 7, rate: 2.5 },
      ...{ burstiness: Infinity, ramp: 'linear', rampFrom: 2, maxConcurrency: 3, lengths: 'random', spread: 0.5 },
      ...{ promptTokens: 9, answerTokens: 8, rangeRatio: 1, longest: 99, vocabSize: 50, ignoreEos: true },
      ...{ temperature: 1, stream: false, extra: { n: 1 }, seed: 4, warmUp: 0, processes: 5, percentiles: [50, 99.9] },
      ...{ goodput: { ttft: 200, tpot: 50 }, idle: 1, stalled: 2, aborts: 0.5, pid: 3, json: true },
    },
  ],
  [
    'bench:serve-gpu',
    serveGpuCommand,
    '--model m --target cpu --threads 2 --cache-tokens 512 --requests 9 --spreads 0.5,1.1 --streams 3 ' +
      '--stream-tokens 4 ' +
      '--share 0.5 --poisson-seconds 5 --rounds 6 --stalled-streams 7 --stalled-tokens 8 --longest 99 --processes 2 ' +
      '--limit 60 --json out.json',
    {
      ...{ model: 'm', target: 'cpu', threads: 2, cacheTokens: 512, requests: 9, spreads: [0.5, 1.1], streams: 3 },
      ...{ streamTokens: 4, share: 0.5, poissonSeconds: 5, rounds: 6, stalledStreams: 7, stalledTokens: 8 },
      ...{ longest: 99, processes: 2, limit: 60, json: 'out.json' },
    },
  ],
  [
    'bench:serving',
    servingCommand,
    '--model mine --gptq mine4 --trained t --trained-gptq t4 --rows 1,6 --target cuda --threads 3 --requests 7 ' +
      '--rounds 2 --spread 0.5 --context 256 --challenge c.jsonl --easy e.jsonl --limit 9',
    {
      ...{
        model: 'mine',
        gptq: 'mine4',
        target: 'cuda',
        threads: 3,
        requests: 7,
        rounds: 2,
        spread: 0.5,
        context: 256,
      },
      ...{ trained: 't', trainedGptq: 't4', rows: [1, 6], challenge: 'c.jsonl', easy: 'e.jsonl', limit: 9 },
    },
  ],
  [
    'bench:ablation',
    ablationCommand,
    '--model mine --target cuda --threads 3 --questions 7 --rounds 2 --batch-tokens 256 --sequences 8 --prefill 64 ' +
      '--data q.jsonl --tokenizer words',
    {
      ...{ model: 'mine', target: 'cuda', threads: 3, questions: 7, rounds: 2, batchTokens: 256, sequences: 8 },
      ...{ prefill: 64, data: 'q.jsonl', tokenizer: 'words' },
    },
  ],
  [
    'bench:gpu',
    gpuCommand,
    '--model mine --tokens 64,8,64 --rounds 3 --seconds 0.1 --kernel ffn,head --kernel layer --try ' +
      'ffn.down@8:stages=5 --all 2 --tuned --database d --mask tree --precision fp8 --finishing deep,all ' +
      '--no-check --json out.json',
    {
      ...{ model: 'mine', tokens: [8, 64], rounds: 3, seconds: 0.1, kernel: ['ffn', 'head', 'layer'], all: 2 },
      ...{ try: [{ kernel: 'ffn.down', tokens: 8, what: 'stages=5' }], tuned: true, database: 'd', mask: 'tree' },
      ...{ precision: 'fp8', finishing: ['deep', 'all'], check: false, json: 'out.json' },
    },
  ],
  [
    'bench:compile',
    compileCommand,
    '--model mine --precision fp8 --function step --target cpu --cache-tokens 128 --layers 60 --layers 120 ' +
      '--rounds 2 --detail --json',
    {
      ...{ model: ['mine'], precision: ['fp8'], function: ['step'], target: 'cpu', cacheTokens: 128 },
      ...{ layers: [60, 120], rounds: 2, detail: true, json: true },
    },
  ],
  [
    'checkpoint:make',
    checkpointCommand,
    '--out x --model llama-8b --seed 2 --tokenizer models/demo --dtype f16 --layers 7 --shard 1.5GB --threads 3',
    {
      ...{ out: 'x', model: expect.stringMatching(/bench.models.llama-8b$/) as string, seed: 2, dtype: 'f16' },
      ...{ tokenizer: 'models/demo', layers: 7, shard: 1.5e9, threads: 3 },
    },
  ],
];

describe.each(LINES)('npm run %s', (script, command, line, options) => {
  it('reads every option', () => {
    const given = line.split(' ').filter((word) => word.startsWith('--'));
    expect([...new Set(given)].sort()).toEqual(
      command()
        .options.map(({ long }) => long)
        .sort(),
    );
    expect(read(command, line)).toEqual(options);
  });

  it('refuses what it does not know, with the command that lists the options', () => {
    const required = script === 'checkpoint:make' ? '--out x' : script === 'bench:serving' ? '--model m' : '';
    const parse = (): unknown => read(command, `${required} --fast yes`);
    expect(parse).toThrow(UserError);
    expect(parse).toThrow("unknown option '--fast'");
    const hint = `look at the options: npm run ${script} -- --help`;
    expect(parse).toThrow(expect.objectContaining({ hint }) as Error);
  });
});

describe('defaults', () => {
  it('of the benchmarks that many commands are written for', () => {
    expect(read(cpuCommand, '')).toEqual({
      ...{ model: ['llama-110m', 'llama-1.1b'], precision: ['auto', 'f32'], threads: 2, seconds: 15 },
      ...{ questions: 400, tune: 0, batchTokens: 1024 },
    });
    expect(read(compileCommand, '')).toMatchObject({
      ...{ model: ['llama-8b', 'llama-33b', 'qwen3-30b-a3b', 'gemma-2-9b'], precision: ['bf16', 'fp8', 'int4'] },
      ...{ function: ['score', 'step'], layers: [], rounds: 3 },
    });
    expect(read(gpuCommand, '')).toMatchObject({ tokens: [1024, 2048, 3840, 5760, 7680], check: true, kernel: [] });
    const model = join('bench', 'models', 'llama-33b');
    expect(read(checkpointCommand, '--out x')).toMatchObject({
      ...{ seed: 1, shard: 1e10, model: expect.stringContaining(model) as string },
    });
  });

  it('of sampling: the most likely tokens, without logits', () => {
    const options = read(generateCommand, '') as GenerateBenchOptions;
    expect(samplingOf(options)).toBeUndefined();
    expect(samplingOf({ ...options, penalty: 1.1 })).toEqual({ temperature: 1, repetitionPenalty: 1.1 });
  });
});

it.each([
  [cpuCommand, '--threads 0', 'expected a whole number from 1 to 1024'],
  [cpuCommand, '--threads 1.5', 'expected a whole number from 1 to 1024'],
  [cpuCommand, '--seconds NaN', 'expected a number from 0.1 to 86400'],
  [cpuCommand, '--seconds=', 'expected a number from 0.1 to 86400'],
  [cpuCommand, '--questions 1e9', 'expected a whole number from 1 to 1000000'],
  [cpuCommand, '--tune Infinity', 'expected a number from 0 to 86400'],
  [cpuCommand, '--batch-tokens 31', 'expected a whole number from 32 to 32768'],
  [cpuCommand, '--precision bf16', 'expected auto or f32'],
  [cpuCommand, '--isa sse', 'expected portable or avx2 or avx512 or amx'],
  [generateCommand, '--batch 1,x', 'expected a whole number from 1 to 1024'],
  [servingCommand, '', "required option '--model <path>' not specified"],
  [servingCommand, '--model m --context 1', 'expected a whole number from 64'],
  [ablationCommand, '--target tpu', 'expected cpu or cuda'],
  [ablationCommand, '--sequences 0', 'expected a whole number from 1 to 4096'],
  [compileCommand, '--layers 0', 'expected a whole number from 1 to 1000'],
  [compileCommand, '--function both', 'expected score or step'],
  [gpuCommand, '--try ffn.down', 'expected KERNEL:SCHEDULE'],
  [checkpointCommand, '--out x --shard 10', 'expected a size with its unit'],
])('%s %j is refused', (command, line, message) => {
  expect(() => read(command, line)).toThrow(UserError);
  expect(() => read(command, line)).toThrow(message);
});
