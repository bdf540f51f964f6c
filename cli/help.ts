/** Texts that several commands' help share. */
import { type Command, Option } from 'commander';
import { KV_CACHES } from '../driver/precision.js';
import { styleOf } from './style.js';

/** Lines after the list of flags: what was not obvious from it. */
export function addSections(command: Command, sections: Readonly<Record<string, readonly string[]>>): Command {
  const text = Object.entries(sections).map(
    ([title, lines]) =>
      `${styleOf(true).bold(`${title}:`)}\n${lines.map((line) => (line === '' ? '' : `  ${line}`)).join('\n')}`,
  );
  return command.addHelpText('after', `\n${text.join('\n\n')}`);
}

export const EXIT_STATUSES = [
  '0    done',
  '1    failed; stderr says what and what to do',
  '2    wrong use: an unknown flag, a value that cannot be, a missing argument',
  '130  stopped with Ctrl-C; stderr says how to go on',
];

export const CHECKPOINT_HELP = [
  'A checkpoint is a Hugging Face folder: config.json, model.safetensors',
  '(or its index and shards), and a tokenizer (tokenizer.json, tokenizer.model,',
  'tekken.json, or vocab.json and merges.txt); or a GGUF file.',
  'With --init random:SEED the weights are made up and config.json alone describes them.',
];

/** The flags that decide how a model is compiled. */
export const addModelFlags = (command: Command): Command =>
  command
    .option(
      '--target <target>',
      'auto: a GPU that is here and can hold the model, else the CPU; cpu; ' +
        'cuda: the GPU of this machine; cuda:sm_90a, cuda:sm_80: a GPU that need not be here (default: auto)',
    )
    .option(
      '--precision <p>',
      'auto: 16-bit inputs where the target has matrix units for them, f32 elsewhere; ' +
        'f32: always (CPU); bf16, f16; fp8, int8, int4: as --quantize (default: auto)',
    )
    .option(
      '--quantize <format>',
      'fp8 (Hopper), int8 (CPU): matrices are rounded to 8 bits, a scale for each row, while they load, and rows of ' +
        'activations as they are multiplied; ' +
        'int4 (Hopper): matrices that are stored in 4 bits stay so in memory, for texts',
    )
    .option(
      '--kv-cache <how>',
      `keys and values: ${KV_CACHES[0]}, as attention multiplies them; int8 or fp8 (E4M3), with a scale for each ` +
        'head of a token: half the memory, in scores as in texts; int8 changes answers least (default: 16bit)',
    )
    .addOption(new Option('--kv-cache-dtype <how>', 'the same').hideHelp())
    .option('--init <random:SEED>', 'make weights up instead of reading them: for measuring')
    .option('--isa <isa>', 'micro-kernels: portable, avx2, avx512 or amx (default: the best this CPU has)')
    .option(
      '--batch-tokens <n>',
      'largest micro-batch in tokens; larger ones are faster and need more memory (default: ' +
        "the model's context, at least 1024, at most 4096; " +
        'on a GPU at least 64 for each multiprocessor, 128 if the model is at most 4096 wide; ' +
        'at most 128 for each, or 16384 if that is more)',
    );

/** The flag that shows details of what a command does while it works. */
export const addVerboseFlag = (command: Command): Command =>
  command.option('-v, --verbose', 'also print why this device, memory by parts, times of loading, counts of tokens');

/** The flag that says how attention adds up keys. */
export const addMaskFlag = (command: Command): Command =>
  command.option(
    '--mask <mask>',
    'what attention groups keys by: path, by position, so that an answer has the same bits in any company; ' +
      'tree, by place in the micro-batch (default: path on a GPU; tree on a CPU, where both give the same bits)',
  );

/** The flags that say on how many devices a model lies, and how. */
export const addDeviceFlags = (command: Command): Command =>
  command
    .option('--devices <n|all>', 'GPUs to use, or parts of the CPU with threads of their own (default: 1)')
    .option('--parallel <how>', 'how the model lies on them: auto, dp=N, pp=N, dpxpp=AxB (see below; default: auto)');

/** The flag that says where an artifact's checkpoint is. */
export const addCheckpointFlag = (command: Command): Command =>
  command.option('--checkpoint <path>', "the artifact's checkpoint, where it is no longer where it was compiled");

/** The flags that say how far an artifact is trusted. */
export const addVerifyFlag = (command: Command): Command =>
  command.option(
    '--verify',
    "read all bytes of the artifact's weights and compare their hashes (compile --hash-weights)",
  );
