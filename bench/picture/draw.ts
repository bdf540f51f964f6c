/** The README's picture, made by the code that it shows: a question's token tree and the kernels of a layer. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { inspectModel } from '../../commands/inspect.js';
import { kernelRows, typicalSize } from '../../commands/inspectKernels.js';
import { taskByName } from '../../evaluate/tasks/index.js';
import { tokenizeQuestions } from '../../evaluate/tokenize.js';
import type { Path } from '../../evaluate/tree.js';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { kernelPanel } from './kernelPanel.js';
import { FADED, label, picture } from './svg.js';
import { treePanel } from './treePanel.js';

const TOKENIZER_MODULE = new URL('../../models/tokenizer.js', import.meta.url).href;

const WIDTH = 980;
const TREE_WIDTH = 520;

/** The picture as SVG text, from the bundled model and data set below `root`. The text is the same every time. */
export async function drawPicture(root: string): Promise<string> {
  const model = join(root, 'models', 'demo');
  const [line = ''] = readFileSync(join(root, 'examples', 'everyday.jsonl'), 'utf8').split('\n');
  const question = taskByName('hellaswag').read(JSON.parse(line), 0, 'examples/everyday.jsonl:1');
  const { spec } = describeTokenizer(model);
  const [tokenized] = await tokenizeQuestions([question], {
    tokenizer: { moduleUrl: TOKENIZER_MODULE, spec },
    workers: 0,
  });
  const { context, continuations } = tokenized!;
  const paths = continuations.map((continuation, choice): Path => ({ question: 0, choice, context, continuation }));

  const inspection = await inspectModel({ model, init: { kind: 'checkpoint' }, precision: 'f32', isa: 'portable' });
  const rows = kernelRows(inspection.plan, typicalSize(1024));

  const tree = treePanel(question, paths, 24, 76, TREE_WIDTH);
  const x = TREE_WIDTH + 56;
  return picture(WIDTH, 412, 'A question becomes a token tree; a layer becomes five kernels', [
    label(24, 34, 'A question becomes a tree of tokens', { size: 16, bold: true }),
    label(24, 55, `${tree.shared} tokens are computed instead of ${tree.separate}`, { colour: FADED }),
    ...tree.parts,
    label(x, 34, 'A layer becomes five kernels', { size: 16, bold: true }),
    label(x, 55, `${inspection.plan.kernels.length} kernels in all; names, shapes and ops as compiled`, {
      colour: FADED,
    }),
    ...kernelPanel(rows, 'layers.0', x, 76, WIDTH - x - 24),
  ]);
}
