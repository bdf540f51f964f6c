/** The flags of adapters: declared, and read. */
import { basename, resolve } from 'node:path';
import type { Command } from 'commander';
import type { NamedAdapter } from '../driver/requests.js';
import { UsageError } from '../errors.js';
import { MAX_ADAPTER_RANK, MAX_ADAPTER_SLOTS } from '../ir/adapterRows.js';
import type { AdapterSlots } from '../ir/adapterRows.js';
import { isFolder } from '../system/read.js';
import { type Flags, text, wholeNumber } from './options.js';

const ONE = 'folder of a LoRA adapter, as PEFT writes them, that the model has (docs/adapters.md)';

/** The flag of commands whose model has one adapter, or several by request. `help`: what they are to the command. */
export const addAdapterFlag = (command: Command, help = ONE): Command =>
  command.option('--adapter <[name=]dir>', help, (value: string, before: readonly string[] = []) => [...before, value]);

/** `NAME=DIR`, or `DIR`, whose name is that of the folder. */
export function namedAdapter(given: string): NamedAdapter {
  const [, name, dir] = /^([^=/\\]+)=(.+)$/s.exec(given) ?? [];
  if (name !== undefined && dir !== undefined && !isFolder(given)) return { name, path: dir };
  if (given === '' || given.startsWith('='))
    throw new UsageError(`--adapter ${JSON.stringify(given)}: expected a folder, or a name and a folder`, EXAMPLE);
  return { name: basename(resolve(given)), path: given };
}

const EXAMPLE = 'for example: --adapter adapters/french, or --adapter fr=adapters/french';

/** All adapters that flags name. */
export function adaptersOf(flags: Flags): readonly NamedAdapter[] {
  const given = flags['adapter'];
  return (Array.isArray(given) ? given : given === undefined ? [] : [given]).map((each) => namedAdapter(String(each)));
}

/** The adapters that lines of prompts name. */
export function namedFlag(flags: Flags): { readonly named?: readonly NamedAdapter[] } {
  const named = adaptersOf(flags);
  return named.length === 0 ? {} : { named };
}

/** The adapter of a command whose model has one. */
export function adapterFlag(flags: Flags): { readonly adapter?: NamedAdapter } {
  const [adapter, ...more] = adaptersOf(flags);
  if (more.length > 0)
    throw new UsageError('--adapter: the model has one adapter, and several are named', 'run the command for each');
  return adapter === undefined ? {} : { adapter };
}

/** The flags that say what adapters a compiled model has room for. */
export const addSlotFlags = (command: Command): Command =>
  command
    .option('--adapter-slots <n>', 'room for n LoRA adapters beside the matrices of layers (docs/adapters.md)')
    .option('--adapter-rank <n>', 'the largest rank of them, a multiple of 16 (default: 16)');

export function slotFlags(flags: Flags): { readonly adapters?: AdapterSlots } {
  const [slots, rank] = [text(flags, 'adapterSlots'), text(flags, 'adapterRank')];
  if (slots === undefined && rank === undefined) return {};
  if (slots === undefined)
    throw new UsageError('--adapter-rank: there are no slots for adapters', 'add --adapter-slots 8');
  return {
    adapters: {
      slots: wholeNumber('--adapter-slots', slots, 1, MAX_ADAPTER_SLOTS, '8'),
      rank: rank === undefined ? 16 : wholeNumber('--adapter-rank', rank, 1, MAX_ADAPTER_RANK, '16'),
    },
  };
}
