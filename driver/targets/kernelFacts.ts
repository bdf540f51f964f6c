/** What is known of printed kernels, and what of it is kept beside a plan. */

/** What both targets know of a printed kernel. */
export interface PrintedText {
  /** Name of the exported function. */
  readonly symbol: string;
  readonly source: string;
  /** SHA-256 of the source, hexadecimal, where that is known. */
  readonly digest?: string;
}

/** What is kept of a printed kernel. */
export type FactsOf<T extends PrintedText> = Omit<T, 'source' | 'parameters'>;

/** What all of it has. */
export type PrintedFacts = Omit<PrintedText, 'source'>;

/** What is kept of the kernels of a plan. */
export interface KernelFacts<F = PrintedFacts> {
  /** Each once. */
  readonly kernels: readonly F[];
  /** places[function][bucket][signature]: the kernel that runs there. */
  readonly places: Readonly<Record<string, readonly Readonly<Record<string, number>>[]>>;
  /** In an artifact: the digest of the sources that its machine code is made of, as its manifest has it. */
  readonly sources?: string;
}
