/** A process that makes one plan, and prints what it took as JSON: `child.js CASE [detail]`. */
import { measureCompile, type Case } from './measure.js';

const [text, wish] = process.argv.slice(2);
const { measured, detail } = measureCompile(JSON.parse(text!) as Case);
console.log(JSON.stringify(wish === 'detail' ? { measured, detail: detail() } : { measured }));
