/** `generate --print-prompts`: prompts as the model sees them. Nothing is compiled, and no weights are read. */
import { dirname } from 'node:path';
import { checkpointPath } from '../driver/artifact/load.js';
import { readManifest } from '../driver/artifact/manifest.js';
import { isArtifact } from '../driver/names.js';
import { readPrompts } from '../generate/promptFile.js';
import { requireModelAt } from '../models/model/refusals.js';
import { openTokenizer } from '../models/tokenizer/tokenizer.js';
import { isFolder } from '../system/read.js';
import type { GenerateRequest } from './generate.js';
import { tokenizePrompts } from './promptTokens.js';
import { openTemplate } from './templates.js';

export type PrintRequest = Pick<
  GenerateRequest,
  'model' | 'checkpoint' | 'prompts' | 'promptFile' | 'templateVariables' | 'signal'
>;

/** A prompt as text, special tokens that a chat template writes included, and as tokens. */
export interface PrintedPrompt {
  readonly where: string;
  readonly text: string;
  readonly tokens: readonly number[];
}

/** Prompts that are written at a time. */
const BATCH = 256;
/** What the model takes is not asked: there may be no more of it than a tokenizer. */
const NO_LIMITS = { vocabSize: Infinity, maxPositions: Infinity };

/** Tells of each prompt in order. Rejects with UserError that names the first prompt that cannot be written. */
export async function printPrompts(request: PrintRequest, tell: (prompt: PrintedPrompt) => void): Promise<void> {
  const { promptFile, signal, templateVariables: variables } = request;
  const named = [...request.prompts, ...(promptFile === undefined ? [] : await readPrompts(promptFile, signal))];
  const path = pathOf(request);
  requireModelAt(path);
  const tokenizer = openTokenizer(path);
  const template = named.some(({ prompt }) => 'messages' in prompt) ? openTemplate(path) : undefined;
  try {
    for (let from = 0; from < named.length; from += BATCH) {
      signal?.throwIfAborted();
      const batch = named.slice(from, from + BATCH);
      const tokenized = await tokenizePrompts(batch, { tokenizer, template, variables }, NO_LIMITS);
      for (const [i, { where, tokens, written }] of tokenized.entries()) {
        const prompt = batch[i]?.prompt ?? { prompt: '' };
        const text = written ?? ('prompt' in prompt ? prompt.prompt : await tokenizer.decode(tokens));
        tell({ where, text, tokens });
      }
    }
  } finally {
    await template?.close();
  }
}

/** The folder of the checkpoint, or the GGUF file. */
function pathOf({ model, checkpoint }: PrintRequest): string {
  if (isArtifact(model)) return checkpointPath(model, readManifest(model), checkpoint);
  return model.endsWith('.json') && !isFolder(model) ? dirname(model) : model;
}
