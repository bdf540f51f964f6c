/** Names of parameters and values. They come from the graph, and a kernel's text does not depend on its layer. */

const KEYWORDS = new Set(
  (
    'auto bool break case char class const continue default delete do double else enum extern false float for friend ' +
    'goto if inline int long namespace new not operator or and private protected public register return short signed ' +
    'sizeof static struct switch template this throw true try typedef union unsigned using virtual void volatile while ' +
    'xor config head_config tw ' +
    // What kernels and their functors call their own.
    'acc across ahead block column columns first fold group held is_stored lane loaded memory partner piece products ' +
    'quad row rows self shared stage sum to total unit values warp'
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
