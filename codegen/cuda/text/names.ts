/** Names of parameters and values. They come from the graph, and a kernel's text does not depend on its layer. */

const KEYWORDS = new Set(
  (
    'auto bool break case char class const continue default delete do double else enum extern false float for friend ' +
    'goto if inline int long namespace new not operator or and private protected public register return short signed ' +
    'sizeof static struct switch template this throw true try ' +
    'typedef union unsigned using virtual void volatile while ' +
    'xor config head_config tw ' +
    // What kernels and their functors call their own.
    'acc across ahead begin block column columns end first fold from group held high is_stored lane loaded local low ' +
    'memory partner piece place products quad route row rows sample self shared stage sum sums tile to total turn ' +
    'unit values warp whole ' +
    // Functions that the statements of programs call.
    'add sub mul div div_sigmoid max min exp log tanh ' +
    'erf floor sqrt inverse_sqrt neg sine cosine round select at_most below ' +
    'equal both either is_true is_false to_float to_byte bytes_of pack load store infinity nan pair row_sum row_max ' +
    'quad_sum quad_max block_sum block_max warp_sum opaque forgotten forget ' +
    'take put bytes bounded prefetch rest look ' +
    'round_bf16 round_f20 round_f24 tail_f24 join_f24 sin_quarter ' +
    'exp2_flushed log2_fast first_of second_of add_to max_nan'
  ).split(' '),
);
const MAX_LENGTH = 40;

/** A C++ name for a buffer, weight or value: without the number of its layer and other counts. */
export function plainName(name: string): string {
  const words = name
    .replaceAll(/[^A-Za-z0-9]+/g, '_')
    .replaceAll(/(^|_)layers?_?\d+(?=_|$)/g, '$1')
    .split('_')
    .filter((word) => word !== '' && !/^\d+$/.test(word))
    .map((word) => (/^(bf16|f16|f32|f20|f24|e4m3|u4|u8|i8|i32)$/.test(word) ? word : word.replace(/\d+$/, '')));
  const joined = words.join('_').slice(0, MAX_LENGTH).replace(/_+$/, '');
  const plain = /^[A-Za-z]/.test(joined) ? joined : `value_${joined}`.replace(/_$/, '');
  return KEYWORDS.has(plain) ? `${plain}_` : plain;
}

/** Names of parameters, in order: plain ones, numbered from the second where two, or one of `others`, are alike. */
export function plainNames(names: readonly string[], others: readonly string[] = []): string[] {
  const taken = new Set(others);
  return names.map((name) => {
    const plain = plainName(name);
    let own = plain;
    for (let i = 2; taken.has(own); i++) own = `${plain}_${i}`;
    taken.add(own);
    return own;
  });
}

/** Short names of what stands around the statements of programs. */
const LOCALS = [
  'c',
  'g',
  'h',
  'i',
  'j',
  'm',
  't',
  'w',
  'x',
  'y',
  'f32',
  'i32',
  'u8',
  'i8',
  'bf16',
  'f16',
  'e4m3',
  'flag',
  // Counters of loops and what follows from them, which the text of a fragment declares.
  'unit_',
  'block_',
  'column_',
  'group_',
  'lying_',
];

/** Names of the values of one piece of text, each given once. Parameters, and what the text uses, keep theirs. */
export class ValueNames {
  private readonly kept: ReadonlySet<string>;
  private readonly taken = new Set<string>();

  constructor(parameters: readonly string[]) {
    this.kept = new Set([...parameters, ...LOCALS]);
  }

  /** A name after that of the graph, or without one. */
  take(name: string | undefined, suffix = ''): string {
    const plain = name === undefined ? 'v' : plainName(`${name}${suffix}`);
    const base = name !== undefined && this.kept.has(plain) ? `${plain.replace(/_$/, '')}_value` : plain;
    let own = base;
    for (let i = 2; this.taken.has(own) || this.kept.has(own); i++) own = `${base}_${i}`;
    this.taken.add(own);
    return own;
  }
}

/** A plain name as that of a type: gate_up → GateUp. */
export const pascalCase = (name: string): string =>
  name
    .split('_')
    .map((word) => word.slice(0, 1).toUpperCase() + word.slice(1))
    .join('');
