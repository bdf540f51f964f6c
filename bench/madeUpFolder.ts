/** Folders of models whose weights are made up: a configuration, and a tokenizer with a text for each of its tokens. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeModel } from '../models/config.js';
import { isRecord } from '../system/json.js';
import { readJsonObject } from '../system/read.js';
import { modelPath, packageRoot } from './inputs.js';

const CONFIG_BYTES = 1 << 20;
/** Tokens of the chat template, the last ones of the vocabulary. */
const CHAT_TOKENS = ['<|start_header_id|>', '<|end_header_id|>', '<|eot_id|>'];
/** What stands between them: a token each, as in the tokenizers of such models. */
const CHAT_WORDS = ['system', 'user', 'assistant', 'ĊĊ'];
/** Turns as Llama 3 has them, in eleven tokens beside the content of a user's turn and the verdict behind it. */
const TEMPLATE =
  "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n" +
  "{{ m['content'] }}<|eot_id|>{% endfor %}" +
  '{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}';

/**
 * Writes the model's config.json, a chat template, and a tokenizer: the demo's pieces, as many as there are tokens for,
 * and made-up words of letters, each of which is one token of a text again. Returns the number of tokens.
 */
export function writeMadeUpFolder(model: string, folder: string): number {
  const path = join(modelPath(model), 'config.json');
  const { value } = readJsonObject(path, CONFIG_BYTES, 'give the folder of a config.json: --model DIR');
  const { vocabSize } = describeModel(value, path).config;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'config.json'), JSON.stringify(value));
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizerOf(vocabSize)));
  const texts = { bos_token: '<s>', eos_token: '</s>', add_bos_token: true, chat_template: TEMPLATE };
  writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify(texts));
  return vocabSize;
}

function tokenizerOf(vocabSize: number): object {
  const json: unknown = JSON.parse(readFileSync(join(packageRoot(), 'models/demo/tokenizer.json'), 'utf8'));
  const demo = isRecord(json) ? json : {};
  const known = isRecord(demo['model']) ? demo['model'] : {};
  const room = vocabSize - CHAT_TOKENS.length;
  const pieces = Object.entries(isRecord(known['vocab']) ? known['vocab'] : {}).filter(
    (entry): entry is [string, number] => typeof entry[1] === 'number' && entry[1] < room - CHAT_WORDS.length,
  );
  const vocab = new Map<string, number>(pieces);
  const merges = (Array.isArray(known['merges']) ? known['merges'] : []).filter(
    (pair: unknown) => Array.isArray(pair) && vocab.has(pair.join('')),
  );
  const words = CHAT_WORDS.filter((text) => !vocab.has(text));
  for (let id = vocab.size, word = 0; id < room; word++) {
    const text = words.shift() ?? `Ġ${lettersOf(word)}`;
    if (!vocab.has(text)) vocab.set(text, id++);
  }
  const added = CHAT_TOKENS.map((content, i) => ({
    ...{ id: room + i, content, special: true, normalized: false },
    ...{ single_word: false, lstrip: false, rstrip: false },
  }));
  return {
    ...demo,
    added_tokens: [...(Array.isArray(demo['added_tokens']) ? demo['added_tokens'] : []), ...added],
    // A word of letters behind a space is looked up whole.
    model: { ...known, vocab: Object.fromEntries(vocab), merges, ignore_merges: true },
  };
}

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

/** Different words for different numbers. */
function lettersOf(word: number): string {
  let [text, left] = ['', word];
  do {
    text += LETTERS[left % LETTERS.length]!;
    left = Math.floor(left / LETTERS.length);
  } while (left > 0);
  return `${text}q`;
}
