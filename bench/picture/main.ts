/** `npm run picture`: writes docs/picture.svg. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { drawPicture } from './draw.js';

const file = join('docs', 'picture.svg');
writeFileSync(file, await drawPicture('.'));
console.log(`${file} written`);
