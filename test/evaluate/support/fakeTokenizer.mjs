// A tokenizer for tests: BOS (1), then pieces of up to three characters of each word. A word's first piece includes the
// space before it. Ids are hashes of pieces, so equal pieces have equal ids and nothing is stored.

function pieceId(piece) {
  let hash = 2166136261;
  for (const letter of piece) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619);
  return 3 + ((hash >>> 0) % 31000);
}

function encode(text) {
  if (text.includes('POISON')) throw new Error('this text cannot be encoded');
  const ids = [1];
  for (const [piece] of text.matchAll(/ ?[^ ]{1,3}| /gu)) ids.push(pieceId(piece));
  return ids;
}

export function createTokenizer(spec) {
  if (spec?.fail === true)
    throw Object.assign(new Error('no such tokenizer'), { name: 'UserError', hint: 'look again' });
  if (spec?.bos === false) return { encode: (text) => encode(text).slice(1) };
  // As a library would: some results at once, others as promises.
  if (spec?.batch === true) return { encode, encodeBatch: async (texts) => texts.map((text) => encode(text)) };
  return { encode: (text) => (text.length % 2 === 0 ? encode(text) : Promise.resolve(Int32Array.from(encode(text)))) };
}
