/** What a tokenizer thread loads: a file that is loaded by its path is a program of the bundle. */
export { createTokenizer } from './tokenizer.js';
