/** Flags of lm-evaluation-harness: each works, or one line says what to do instead. */
import { describe, expect, it } from 'vitest';
import { parseGeneration, parseSamples, parseSeeds } from '../../cli/askedOfTasks.js';
import { joinLists } from '../../cli/harnessFlags.js';
import type { RunResult, TasksRequest } from '../../commands/runRequest.js';
import type { WithTargetChoice } from '../../driver/precision.js';
import { Float } from '../../python/value.js';
import { runCli } from './fakeIo.js';

const RESULT: RunResult = { results: {}, table: '|table|', resultsPath: undefined, samplesPath: undefined };

async function outcomeOf(argv: readonly string[]): Promise<{
  readonly request: WithTargetChoice<TasksRequest> | undefined;
  readonly stderr: string;
  readonly status: number;
}> {
  let request: WithTargetChoice<TasksRequest> | undefined;
  const { status, stderr } = await runCli(argv, {
    run: (asked) => {
      request = asked as WithTargetChoice<TasksRequest>;
      return Promise.resolve(RESULT);
    },
  });
  return { request, stderr, status };
}

/** What `run --tasks` was asked for with these flags. */
async function requestOf(...flags: string[]): Promise<Partial<WithTargetChoice<TasksRequest>>> {
  const { request, stderr } = await outcomeOf(['run', 'models/demo', '--tasks', 'mmlu', ...flags]);
  expect(request, stderr).toBeDefined();
  return request!;
}

describe('flags that work', () => {
  it.each([
    [['--num_fewshot', '3', '--limit', '0.1'], { shots: 3, limit: 0.1 }],
    [['--apply_chat_template'], { appliesChatTemplate: true }],
    [
      ['--apply_chat_template', '--chat-template-kwargs', '{"enable_thinking": false}'],
      { appliesChatTemplate: true, templateVariables: new Map([['enable_thinking', false]]) },
    ],
    [
      ['--apply_chat_template', '--model_args', 'enable_thinking=False'],
      { appliesChatTemplate: true, templateVariables: new Map([['enable_thinking', false]]) },
    ],
    [['--apply_chat_template', 'rag'], { appliesChatTemplate: true, templateName: 'rag' }],
    [['--output_path', 'out'], { output: 'out' }],
    [['--output_path', 'out/r.json'], { output: 'out', resultsStem: 'r' }],
    [['--seed', '7'], { seeds: { python: 7, numpy: 7, torch: 7, fewshot: 7 } }],
    [['--samples', '{"a": [2, 0]}'], { samples: new Map([['a', new Set([2, 0])]]) }],
    [['--predict_only', '--output_path', 'out'], { predictsOnly: true }],
    [['--device', 'cpu'], { target: 'cpu' }],
    [['--model_args', 'peft=adapters/fr'], { adapter: { name: 'fr', path: 'adapters/fr' } }],
    [['--adapter', 'french=adapters/fr'], { adapter: { name: 'french', path: 'adapters/fr' } }],
    [
      ['--gen_kwargs', 'do_sample=true', 'top_k=5'],
      {
        generation: new Map<string, unknown>([
          ['do_sample', true],
          ['top_k', 5],
        ]),
      },
    ],
    [['hellaswag', 'winogrande,piqa'], { tasks: ['mmlu', 'hellaswag', 'winogrande', 'piqa'] }],
  ] as const)('%j', async (flags, expected) => {
    expect(await requestOf(...flags)).toMatchObject(expected);
  });

  it('takes the model from --model_args', async () => {
    const argv = ['run', '--model', 'hf', '--model_args', 'pretrained=models/demo', 'dtype=float32', '--tasks', 'mmlu'];
    const { request, stderr } = await outcomeOf(argv);
    expect(request).toMatchObject({ model: 'models/demo', precision: 'f32', tasks: ['mmlu'] });
    expect(stderr).toContain('note: --model has no effect');
  });

  it.each([
    '--batch_size 4',
    '--verbosity INFO',
    '--write_out',
    '--trust_remote_code',
    '--cache_requests',
    '--use_cache x',
  ])('%s is noted', async (flag) => {
    const { status, stderr } = await outcomeOf(['run', 'models/demo', '--tasks', 'mmlu', ...flag.split(' ')]);
    expect([status, stderr]).toEqual([0, expect.stringMatching(`^note: ${flag.split(' ')[0]!} has no effect: .*\n$`)]);
  });
});

describe('flags that are refused', () => {
  it.each([
    ['--wandb_args project=x', '--wandb_args is not supported'],
    ['--config run.yaml', '--config is not supported'],
    ['--model_args parallelize=True', 'parallelize is not supported', '--devices all uses every GPU'],
    ['--model_args load_in_8bit=True', 'load_in_8bit is not supported', '--quantize int8'],
    ['--model_args constructor=1', 'constructor is not supported', 'tilewright run --help lists the flags'],
    ['--model_args dtype=int8', 'no such precision'],
    ['--model_args pretrained=other', 'the model is models/demo'],
    ['--device cuda:1', 'expected cpu or cuda'],
    ['--device cpu --target cuda', '--device cpu and --target cuda differ'],
    ['--log_samples', '--log_samples needs a folder to write to'],
    ['--predict_only', '--predict_only needs a folder to write to'],
    ['--samples {} --limit 3', 'exclude each other'],
    ['--samples {', '--samples: '],
    ['--seed None', 'expected one whole number'],
    ['--gen_kwargs temperature', 'expected a name, = and a value'],
    ['--out a --output_path b', 'differ'],
    ['--fewshot_as_multiturn', '--fewshot_as_multiturn needs a chat template'],
    ['--apply_chat_template ../x', 'no name of a template'],
  ])('%s', async (flags, message, hint = '') => {
    const { status, stderr } = await outcomeOf(['run', 'models/demo', '--tasks', 'mmlu', ...flags.split(' ')]);
    expect([status, stderr.trimEnd().split('\n').length]).toEqual([2, 2]);
    expect(stderr).toContain(message);
    expect(stderr).toContain(hint);
  });

  it('needs a model', async () => {
    expect(await outcomeOf(['run', '--tasks', 'mmlu'])).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("missing required argument 'model'") as string,
    });
  });
});

describe('values', () => {
  it('reads seeds', () => {
    expect(parseSeeds('1,2,3')).toEqual({ python: 1, numpy: 2, torch: 3, fewshot: 1234 });
    expect(parseSeeds('1,2,3,4').fewshot).toBe(4);
    expect(parseSeeds('0,None,8,52')).toEqual({ python: 0, numpy: null, torch: 8, fewshot: 52 });
    for (const unseeded of ['None', 'None,1,2,3', '0,1,None,3', '0,1,2,None'])
      expect(() => parseSeeds(unseeded)).toThrow(`--seed ${unseeded}: expected one whole number, or four`);
  });

  it('reads settings of generation as the harness does', () => {
    const written = 'do_sample=True,temperature=0.7,until=["a,b", "c"],max_gen_toks=5,stop=x,top_k=-1,top_p=none';
    const expected = [
      ['do_sample', true],
      ['temperature', new Float(0.7)],
      ['until', ['a,b', 'c']],
      ['max_gen_toks', 5],
      ['stop', 'x'],
      ['top_k', -1],
      ['top_p', null],
    ];
    expect([...parseGeneration(written)]).toEqual(expected);
    expect([...parseGeneration('{"temperature": 0.7, "until": ["x"]}')]).toEqual([
      ['temperature', new Float(0.7)],
      ['until', ['x']],
    ]);
  });

  it.each(['[1]', '{"a": []}', '{"a": [0.5]}', '{"a": 1}', '/no/such/file'])('refuses samples %s', (written) => {
    expect(() => parseSamples(written)).toThrow('--samples: ');
  });

  it('joins what the harness takes as several words', () => {
    const argv = ['run', 'm', '--tasks', 'a', 'b', '--gen-kwargs', 'x=1', 'y=2', '--data-root=a_b'];
    expect(joinLists(argv)).toEqual(['run', 'm', '--tasks', 'a,b', '--gen-kwargs', 'x=1,y=2', '--data-root=a_b']);
  });
});
