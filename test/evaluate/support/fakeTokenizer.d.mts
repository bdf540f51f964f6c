import type { TextTokenizer } from '../../../evaluate/tokenizeChunk.js';

export interface FakeSpec {
  readonly fail?: boolean;
  readonly bos?: boolean;
  readonly batch?: boolean;
}

export function createTokenizer(spec: FakeSpec): TextTokenizer;
