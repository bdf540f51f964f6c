/** `tilewright merge-adapter`: a checkpoint with an adapter in its weights. */
import type { Command } from 'commander';
import type { MergeAdapterRequest } from '../commands/mergeAdapter.js';
import { isArtifact } from '../driver/names.js';
import { UsageError } from '../errors.js';
import { quoteForShell } from '../system/process.js';
import { bytes, counted, duration } from '../system/text.js';
import { addVerboseFlag } from './modelFlags.js';
import { addSections, choice, EXIT_STATUSES, type Flags, required, text } from './options.js';
import { printText } from './print.js';
import { faceOf } from './ui.js';
import { type Context, printJson, refuseHubName, sameCommand, withUi } from './work.js';

export function addMergeAdapter(program: Command, context: Context): void {
  const command = program
    .command('merge-adapter')
    .summary('checkpoint and LoRA adapter → checkpoint')
    .description(
      'Writes a copy of a checkpoint with an adapter in its weights: W + s·B·A, with DoRA, biases and whole modules. ' +
        'Sums are exact to 53 bits and rounded once. The result is another model, which is read as any checkpoint is.',
    )
    .argument('<base>', 'folder of a Hugging Face checkpoint with weights of 16 or 32 bits')
    .argument('<dir>', 'folder of an adapter for it, as PEFT writes them')
    .option('-o, --out <dir>', 'folder to write; nothing may be there yet')
    .option('--dtype <type>', 'element type of tensors that change: f32, bf16, f16 (default: as they are stored)')
    .option('-q, --quiet', 'print results and errors only: no progress, no notes, no warnings');
  addVerboseFlag(command)
    .option('--json', 'print the result as JSON and nothing else')
    .action(async (checkpoint: string, adapter: string, _options: unknown, self: Command) => {
      await merge(context, checkpoint, adapter, self.opts<Flags>());
    });
  addSections(command, {
    'Merge or not': [
      'bf16 keeps 8 bits: a change below half a unit of a weight is lost, so a merged model answers a',
      'little otherwise than its base with --adapter, which loses nothing. Merged, it needs no slots.',
    ],
    'What is written': [
      'model.safetensors, config.json, and the files of tokenizer and generation. Quantized checkpoints',
      'are refused: their sums would have to be quantized again. docs/adapters.md says what is read.',
    ],
    Examples: [
      'tilewright merge-adapter model adapter --out merged',
      'tilewright merge-adapter model adapter --out merged --dtype f32 --json',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

async function merge(context: Context, model: string, adapter: string, flags: Flags): Promise<void> {
  await refuseHubName(model);
  const example = `tilewright merge-adapter ${quoteForShell(model)} ${quoteForShell(adapter)} --out merged`;
  const output = required(flags, 'out', '--out DIR', example);
  if (isArtifact(model))
    throw new UsageError(`${model}: is an artifact`, 'give the checkpoint that it was compiled from');
  const stated = text(flags, 'dtype');
  const request: MergeAdapterRequest = {
    model,
    adapter,
    output,
    ...(stated === undefined ? {} : { dtype: choice('--dtype', stated, ['f32', 'bf16', 'f16']) }),
  };
  const face = faceOf(flags);
  const advice = (): string => `nothing was written; start again with\n  ${sameCommand(context)}`;
  const { value: result } = await withUi(
    context,
    { ...face, advice, resultsIn: 'merge-adapter' },
    async (ui, signal) => {
      const story = await import('../commands/mergeAdapter.js');
      return story.mergeAdapter({ ...request, signal }, ui);
    },
  );
  if (face.isJson) printJson(context.io, result);
  else
    printText(
      context.io,
      `${result.output}: ${counted(result.changed, 'tensor')} changed, ${result.kept} as before, ` +
        `${bytes(result.bytes)}\ntook ${duration(result.seconds)}\n`,
    );
}
