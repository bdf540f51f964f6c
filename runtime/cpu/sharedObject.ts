/**
 * Finds damage in a shared object before the system maps it: dlopen believes what the headers say, and a process that
 * touches a page behind the end of the file dies of SIGBUS. This finds damage, not malice: code is not looked at.
 * Layout: System V ABI, chapters 4 and 5, in the 64-bit little-endian form of all our hosts.
 */

const HEADER_BYTES = 64;
const PROGRAM_HEADER_BYTES = 56;
const SECTION_HEADER_BYTES = 64;
const DYNAMIC_ENTRY_BYTES = 16;
/** Compilers write about ten program headers and thirty sections. */
const MAX_HEADERS = 4096;
/** Our largest kernels take some MiB. */
const MAX_MAPPED_BYTES = 2 ** 31;

/** Values of e_machine, by Node's name of the architecture. */
const MACHINES: Readonly<Record<string, number>> = { x64: 62, arm64: 183 };
const SHARED_OBJECT = 3;
const PROGRAM_HEADER = { load: 1, dynamic: 2 } as const;
const SECTION_WITHOUT_BYTES = 8;
const DYNAMIC = { end: 0, strings: 5, symbols: 6 } as const;
/**
 * Entries of the dynamic section that hold an address: PLTGOT, HASH, STRTAB, SYMTAB, RELA, INIT, FINI, REL, JMPREL,
 * INIT_ARRAY, FINI_ARRAY, GNU_HASH, VERSYM, VERDEF and VERNEED.
 */
const ADDRESSES = new Set([3, 4, 5, 6, 7, 12, 13, 17, 23, 25, 26, 0x6fff_fef5, 0x6fff_fff0, 0x6fff_fffc, 0x6fff_fffe]);

interface ElfSegment {
  readonly type: number;
  readonly offset: number;
  readonly address: number;
  readonly fileBytes: number;
  readonly memoryBytes: number;
  readonly alignment: number;
}

/** Reads fields of headers. Numbers above 2⁵³ lose digits and are out of every bound all the same. */
class ElfFields {
  private readonly view: DataView;

  constructor(bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  readonly half = (at: number): number => this.view.getUint16(at, true);
  readonly word = (at: number): number => this.view.getUint32(at, true);
  readonly long = (at: number): number => Number(this.view.getBigUint64(at, true));
}

/** What is wrong with the bytes of a shared object for the architecture `arch`; undefined if nothing is. */
export function sharedObjectProblem(bytes: Uint8Array, arch: string = process.arch): string | undefined {
  const size = bytes.length;
  if (size < HEADER_BYTES) return `${size} bytes are too few for an ELF file`;
  if (!Buffer.from(bytes.subarray(0, 4)).equals(Buffer.from('\x7fELF', 'latin1'))) return 'it is no ELF file';
  if (bytes[4] !== 2 || bytes[5] !== 1) return 'it is no 64-bit little-endian ELF file';
  const { half, word, long } = new ElfFields(bytes);
  if (half(16) !== SHARED_OBJECT) return `its ELF type is ${half(16)}, not a shared object`;
  if (half(18) !== MACHINES[arch]) return `its ELF machine is ${half(18)}, which is not ${arch}`;
  if (half(52) !== HEADER_BYTES) return `its ELF header says that it has ${half(52)} bytes`;

  const isInside = (offset: number, length: number): boolean => offset + length <= size;
  const tableProblem = (
    name: string,
    at: number,
    count: number,
    each: number,
    expected: number,
  ): string | undefined => {
    if (count > MAX_HEADERS) return `it has ${count} ${name} headers`;
    if (count > 0 && each !== expected) return `its ${name} headers have ${each} bytes each`;
    return isInside(at, count * each) ? undefined : `its ${name} headers are not inside the file`;
  };
  const [programs, sections] = [long(32), long(40)];
  const [programCount, sectionCount] = [half(56), half(60)];
  const tables =
    tableProblem('program', programs, programCount, half(54), PROGRAM_HEADER_BYTES) ??
    tableProblem('section', sections, sectionCount, half(58), SECTION_HEADER_BYTES);
  if (tables !== undefined) return tables;

  for (let i = 0; i < sectionCount; i++) {
    const at = sections + i * SECTION_HEADER_BYTES;
    if (word(at + 4) !== SECTION_WITHOUT_BYTES && !isInside(long(at + 24), long(at + 32)))
      return `section ${i} is not inside the file`;
  }
  const segments = Array.from({ length: programCount }, (_, i): ElfSegment => {
    const at = programs + i * PROGRAM_HEADER_BYTES;
    return {
      type: word(at),
      offset: long(at + 8),
      address: long(at + 16),
      fileBytes: long(at + 32),
      memoryBytes: long(at + 40),
      alignment: long(at + 48),
    };
  });
  const outside = segments.findIndex(({ offset, fileBytes }) => !isInside(offset, fileBytes));
  if (outside >= 0) return `segment ${outside} is not inside the file`;
  const loaded = segments.filter(({ type }) => type === PROGRAM_HEADER.load);
  return loadProblem(loaded) ?? dynamicProblem(long, segments, loaded);
}

/** Segments that are mapped lie one behind the other, and their place in memory fits their place in the file. */
function loadProblem(loaded: readonly ElfSegment[]): string | undefined {
  if (loaded.length === 0) return 'no segment of it is loaded';
  let end = 0;
  for (const { offset, address, fileBytes, memoryBytes, alignment } of loaded) {
    if (address < end) return 'its segments overlap in memory';
    end = address + memoryBytes;
    if (memoryBytes < fileBytes || end > MAX_MAPPED_BYTES) return `a segment takes ${memoryBytes} bytes of memory`;
    if (alignment > 1 && (!Number.isInteger(Math.log2(alignment)) || (address - offset) % alignment !== 0))
      return `a segment at ${address} is not aligned to ${alignment} bytes`;
  }
  return undefined;
}

/** The tables that the loader reads through the dynamic section are in memory. */
function dynamicProblem(
  long: ElfFields['long'],
  segments: readonly ElfSegment[],
  loaded: readonly ElfSegment[],
): string | undefined {
  const dynamic = segments.filter(({ type }) => type === PROGRAM_HEADER.dynamic);
  const [table] = dynamic;
  if (table === undefined || dynamic.length > 1) return `it has ${dynamic.length} dynamic sections`;
  const isMapped = loaded.some(
    ({ offset, address, fileBytes }) =>
      table.offset >= offset &&
      table.offset + table.fileBytes <= offset + fileBytes &&
      table.address - table.offset === address - offset,
  );
  if (!isMapped) return 'its dynamic section is in no segment that is loaded';
  const found = new Set<number>();
  for (let at = table.offset; at + DYNAMIC_ENTRY_BYTES <= table.offset + table.fileBytes; at += DYNAMIC_ENTRY_BYTES) {
    const [tag, value] = [long(at), long(at + 8)];
    if (tag === DYNAMIC.end) {
      const isWhole = found.has(DYNAMIC.strings) && found.has(DYNAMIC.symbols);
      return isWhole ? undefined : 'its dynamic section names no symbols';
    }
    found.add(tag);
    if (ADDRESSES.has(tag) && !loaded.some((each) => value >= each.address && value < each.address + each.memoryBytes))
      return `entry ${tag} of its dynamic section leads out of the segments that are loaded`;
  }
  return 'its dynamic section has no end';
}
