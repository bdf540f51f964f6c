/** Opens the tokenizer of a folder once, and prints what that took. A process for each opening: `main.ts` starts it. */
import { join } from 'node:path';
import { Tokenizer } from 'tokenizers';
import { openTokenizer } from '../../models/tokenizer/tokenizer.js';

const [how, dir = ''] = process.argv.slice(2);
const started = performance.now();
const before = process.cpuUsage();
if (how === 'library') Tokenizer.fromFile(join(dir, 'tokenizer.json'));
else openTokenizer(dir);
const { user, system } = process.cpuUsage(before);
const [seconds, processor] = [(performance.now() - started) / 1000, (user + system) / 1e6];
console.log(JSON.stringify({ wall: seconds, cpu: processor }));
