/** `tilewright compile`: checkpoint to artifact. */
import type { Command } from 'commander';
import type { CompileResult } from '../commands/compile.js';
import { isArtifact } from '../driver/names.js';
import { UsageError } from '../errors.js';
import { quoteForShell } from '../system/process.js';
import { bytes, count, duration } from '../system/text.js';
import { addSlotFlags, slotFlags } from './adapterFlags.js';
import { addMaskFlag, addModelFlags, addVerboseFlag, modelFlags } from './modelFlags.js';
import { addSections, CHECKPOINT_HELP, EXIT_STATUSES, type Flags, isSet, required } from './options.js';
import { printText } from './print.js';
import { faceOf } from './ui.js';
import { type Context, printJson, refuseHubName, sameCommand, withUi } from './work.js';

export function addCompile(program: Command, context: Context): void {
  const command = program
    .command('compile')
    .summary('checkpoint → artifact: graph, fused kernels, memory plan')
    .description(
      'Compiles a checkpoint into an artifact: a folder with the graph, the plan, the generated sources ' +
        'and their machine code. Weights stay where they are and are read when the artifact runs.',
    )
    .argument('<checkpoint>', 'folder of a Hugging Face checkpoint, or a .gguf file')
    .option('-o, --output <dir>', 'artifact folder to write, by habit name.tw; an artifact that is there is replaced');
  command
    .option('--pack-weights', 'copy the checkpoint into the artifact, so that it runs without it, also elsewhere')
    .option('--cache-tokens <n>', 'also compile for generate, with memory for the keys and values of n tokens')
    .option(
      '--logits',
      'with --cache-tokens: steps can keep logits on the device, for filters, penalties, biases, beams, ' +
        '--min-new-tokens and --top-logprobs of generate',
    )
    .option('--hash-weights', 'read all bytes of the weights now, so that run --verify can compare them');
  addMaskFlag(addSlotFlags(addModelFlags(command)))
    .option('--dump <dir>', 'write every stage, numbered: the graph after each pass, kernels, sources, plan')
    .option('-q, --quiet', 'print results and errors only: no progress, no notes, no warnings');
  addVerboseFlag(command)
    .option('--json', 'print the result as JSON and nothing else')
    .action(async (checkpoint: string, _options: unknown, self: Command) => {
      await compile(context, checkpoint, self.opts<Flags>());
    });
  addSections(command, {
    'About the input': CHECKPOINT_HELP,
    Examples: [
      'tilewright compile models/demo -o demo.tw',
      'tilewright compile models/demo -o exact.tw --precision f32',
      'tilewright compile models/demo -o whole.tw --pack-weights',
      'tilewright compile models/demo -o gpu.tw --target cuda:sm_90a        # needs NVRTC or nvcc',
      'tilewright compile models/demo/config.json --init random:1 -o shape.tw',
    ],
    Next: ['tilewright tune demo.tw --budget 5m', 'tilewright inspect demo.tw'],
    'Exit status': EXIT_STATUSES,
  });
}

async function compile(context: Context, checkpoint: string, flags: Flags): Promise<void> {
  const { io } = context;
  await refuseHubName(checkpoint);
  const output = required(flags, 'output', '-o DIR', `tilewright compile ${quoteForShell(checkpoint)} -o model.tw`);
  const model = { ...modelFlags(flags), ...slotFlags(flags) };
  if (isArtifact(checkpoint))
    throw new UsageError(
      `${checkpoint}: is an artifact already`,
      `tune it (tilewright tune ${checkpoint}), run it, or give the checkpoint that it was made from`,
    );
  if (isSet(flags, 'logits') && model.cacheTokens === undefined)
    throw new UsageError(
      '--logits: they are those of steps, which are compiled with --cache-tokens',
      'add --cache-tokens 32768',
    );
  const face = faceOf(flags);
  const kept = {
    ...(isSet(flags, 'logits') ? { logits: true } : {}),
    ...(isSet(flags, 'packWeights') ? { packsWeights: true } : {}),
    ...(isSet(flags, 'hashWeights') ? { hashesWeights: true } : {}),
  };
  const advice = (): string => `nothing was written; start again with\n  ${sameCommand(context)}`;
  const { value: result } = await withUi(context, { ...face, advice }, async (ui, signal) => {
    const story = await import('../commands/compile.js');
    return story.compile({ model: checkpoint, output, signal, ...kept, ...model }, ui);
  });
  if (face.isJson) printJson(io, result);
  else printText(io, describe(result));
}

const describe = (result: CompileResult): string =>
  [
    `${result.artifact}: ${count(result.kernels)} kernels, ${result.distinctKernels} of them different; ` +
      `${result.isa}, ${result.arithmetic} inputs`,
    `memory: ${bytes(result.arenaBytes)} for a micro-batch, ${bytes(result.packedWeightBytes)} of packed weights`,
    `took ${duration(result.seconds)}${result.cached ? ' (kernels from the cache)' : ''}`,
    '',
  ].join('\n');
