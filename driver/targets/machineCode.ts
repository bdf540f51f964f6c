/**
 * Machine code in an artifact. Its behaviour cannot be verified, so it runs only if the user allows it: at once where
 * this program made the artifact, whose plan is then taken as it is too; else only if kernels cannot be compiled from
 * the verified graph.
 */
import { createHash } from 'node:crypto';
import { MissingCompiler, UserError } from '../../errors.js';
import type { Origins } from '../../ir/scalar.js';
import type { Header } from '../../ir/unit.js';
import type { SourceText } from '../../runtime/compilers.js';

/** Newly compiled machine code, in the form that an artifact may carry. */
export interface CompiledCode {
  /** The machines it runs on: `avx512 linux-x64`, `sm_90a`. Others refuse it. */
  readonly machine: string;
  /** The compiler's name for messages, without paths. */
  readonly compiler: string;
  /** All sources that were compiled. */
  readonly units: readonly SourceText[];
  readonly files: readonly { readonly name: string; readonly bytes: Uint8Array }[];
}

/** A plan's kernels in machine code. */
export interface CompiledPlan {
  readonly isCached: boolean;
  readonly seconds: number;
  /** Whether the machine code came with the artifact. */
  readonly isUnpacked: boolean;
  /** The code in the form that an artifact carries. */
  code(): Promise<CompiledCode> | CompiledCode;
}

/** Machine code of an artifact. Each function throws UserError. */
export interface PackedCode {
  /** Whether the user allows it to run. */
  readonly isTrusted: boolean;
  /** Whether the user allows it, and this program made it: it is used where it fits, compiler or not. */
  readonly isDirect: boolean;
  /** Undefined if the artifact holds no machine code. */
  readonly record: CodeRecord | undefined;
  /** The artifact's folder. */
  readonly where: string;
  /** The command that rebuilds the artifact. */
  readonly again: string;
  /**
   * Refuses code for another machine or kernel ABI, or from sources other than those of the plan: `sources` as this
   * program prints them, or, where it made the code, as what came with the plan says.
   */
  requireFit(machine: string, sources: () => readonly SourceText[]): void;
  /** The bytes of a file, checked against the manifest's digest. */
  read(name: string): Uint8Array;
  /** An error about the code, with the command that rebuilds the artifact. */
  problem(what: string): UserError;
}

/** A manifest's record of machine code: its machine, sources and compiler, and the digest of each file. */
export interface CodeRecord {
  readonly abi: number;
  readonly machine: string;
  readonly compiler: string;
  readonly sources: string;
  readonly files: Readonly<Record<string, string>>;
}

const sha256 = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex');

const digestOf = (sources: readonly SourceText[]): string =>
  sha256(JSON.stringify(sources.map(({ name, text }) => [name, text])));

/** The record of newly compiled code. */
export const recordOf = ({ machine, compiler, units, files }: CompiledCode, abi: number): CodeRecord => ({
  abi,
  machine,
  compiler,
  sources: digestOf(units),
  files: Object.fromEntries(files.map(({ name, bytes }) => [name, sha256(bytes)])),
});

/** Machine code as an artifact keeps it. */
export interface StoredCode {
  readonly record: CodeRecord;
  readonly files: CompiledCode['files'];
}

/** An artifact's machine code, to be written again as it is. Throws UserError if a file is damaged. */
export const storedCode = ({ record, read }: PackedCode): StoredCode | undefined =>
  record && { record, files: Object.keys(record.files).map((name) => ({ name, bytes: read(name) })) };

/** The code that `record` describes, read by `readFile`. */
export function packedCode(
  record: CodeRecord | undefined,
  {
    isTrusted,
    madeOf,
    abi,
    where,
    again,
    readFile,
  }: {
    readonly isTrusted: boolean;
    /** The digest of its sources, where they need not be printed to know it. */
    readonly madeOf?: string | undefined;
    /** The kernel ABI of this program. */
    readonly abi: number;
    readonly where: string;
    readonly again: string;
    readonly readFile: (name: string) => Uint8Array;
  },
): PackedCode {
  const problem = (what: string): UserError => new UserError(`${where}: machine code: ${what}`, again);
  return {
    isTrusted,
    isDirect: isTrusted && madeOf !== undefined,
    record,
    where,
    again,
    problem,
    requireFit: (machine, sources) => {
      if (record === undefined) throw problem('there is none');
      if (record.machine !== machine) throw problem(`it was made for ${record.machine}, this is ${machine}`);
      if (record.abi !== abi) throw problem(`it has kernel ABI ${record.abi}, this tilewright has ${abi}`);
      if (record.sources !== (madeOf ?? digestOf(sources())))
        throw problem('it was made of other kernels than this version of tilewright prints for the plan');
    },
    read: (name) => {
      const files = record?.files ?? {};
      const expected = Object.hasOwn(files, name) ? files[name] : undefined;
      if (expected === undefined) throw problem(`${name} is not listed in the manifest`);
      const bytes = readFile(name);
      const actual = sha256(bytes);
      if (actual !== expected)
        throw problem(
          `${name} has hash ${actual.slice(0, 12)}…, the manifest says ${expected.slice(0, 12)}…: the file is damaged`,
        );
      return bytes;
    },
  };
}

/** What a user must know before using --trust-code. */
const TRUST =
  "--trust-code runs the artifact's own machine code, with your rights, unchecked, and takes its plan as it is: " +
  'use it only for artifacts of people whose programs you would run';

/**
 * The artifact's own code, where this program made it and the user allows it. Else, or where it does not fit, compiles;
 * if there is no compiler and the user allows it, uses the artifact's own code after all.
 */
export async function compileOrUnpack<T>(
  packed: PackedCode | undefined,
  compile: () => Promise<T>,
  unpack: (packed: PackedCode) => T | Promise<T>,
): Promise<T> {
  let misfit: UserError | undefined;
  if (packed?.isDirect === true) {
    try {
      return await unpack(packed);
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      misfit = error;
    }
  }
  try {
    return await compile();
  } catch (error) {
    if (!(error instanceof MissingCompiler) || packed === undefined) throw error;
    if (misfit !== undefined) throw misfit;
    const install = error.hint ?? 'Install one.';
    if (packed.record === undefined)
      throw new UserError(
        `${error.message} ${packed.where} holds no machine code for this machine either.`,
        `${install}\nOr give the artifact its code on a machine of this kind that has a compiler: ${packed.again}`,
        { cause: error },
      );
    if (packed.isTrusted) return unpack(packed);
    throw new UserError(error.message, `${install}\n${TRUST}`, { cause: error });
  }
}

/** What is said where the artifact's own code runs. */
export const ownCodeNote = ({ isDirect }: Pick<PackedCode, 'isDirect'>): string =>
  isDirect
    ? 'the plan and the machine code of the artifact are used as they are, because --trust-code was given'
    : 'no compiler is here: the machine code of the artifact runs, because --trust-code was given';

/** What both targets know of a printed kernel. */
export interface PrintedText {
  /** Name of the exported function. */
  readonly symbol: string;
  readonly source: string;
  /** All headers that the source includes, behind those that they include. */
  readonly headers: readonly Header[];
  /** unitDigest of both, where that is known. */
  readonly digest?: string;
  /** Of the kernel that was printed, where its text shows names of the graph: originsIn, because a plan has none. */
  readonly origins?: Origins | undefined;
}

/** What is kept of a printed kernel. */
export type FactsOf<T extends PrintedText> = Omit<T, 'source' | 'headers' | 'parameters'>;

/** What all of it has. */
export type PrintedFacts = Omit<PrintedText, 'source' | 'headers'>;

/** What is kept of the kernels of a plan. */
export interface KernelFacts<F = PrintedFacts> {
  /** Each once. */
  readonly kernels: readonly F[];
  /** places[function][bucket][signature]: the kernel that runs there. */
  readonly places: Readonly<Record<string, readonly Readonly<Record<string, number>>[]>>;
  /** In an artifact: the digest of the sources that its machine code is made of, as its manifest has it. */
  readonly sources?: string;
}
