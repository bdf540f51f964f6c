/** Folders with files of tokenizers, for tests. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { sentencePieceModel, toyPieces } from './sentencepieceWriter.js';
import { temporaryFolder, writeJson } from './support.js';

/** A tokenizer.model of few pieces, in which the token of `a` at a word's beginning is 5. */
export const TOY = sentencePieceModel({ pieces: [...toyPieces, ['▁', -1], ['a', -2], ['▁a', -3]] });

/** A folder with these files: bytes as they are, anything else as JSON. */
export function tokenizerFolder(files: Record<string, unknown>): string {
  const dir = temporaryFolder();
  for (const [name, content] of Object.entries(files)) {
    if (content instanceof Uint8Array) writeFileSync(join(dir, name), content);
    else writeJson(dir, name, content);
  }
  return dir;
}
