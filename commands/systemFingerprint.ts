/** What a server's answers come from, in a word: equal words, prompts and seeds give equal answers. */
import { sha256, weightsId } from '../driver/artifact/manifest.js';
import { VERSION } from '../driver/program.js';
import { findChatTemplate } from '../models/chat/template.js';
import type { LoadedModel } from './loadModel.js';
import { deviceName } from './runRecord.js';

const hashOf = (parts: readonly unknown[]): string => sha256(JSON.stringify(parts)).slice(0, 10);

/** `cpu avx512 Intel Xeon` → `cpu-avx512-intel-xeon` */
const slug = (text: string): string =>
  text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '');

/**
 * Weights (with the tokenizer and the chat template, which prompts become tokens by), the plan that computes with them,
 * and the kind of device: `w1a2b3c4d5-p6e7f8a9b0-cuda-sm90-nvidia-h100`. How many devices there are, and how much
 * memory, changes no bits. Of weights it covers what a checkpoint's fingerprint does: sizes, headers, and samples of
 * every tensor.
 */
export function systemFingerprint({
  checkpoint,
  id,
  model,
  reference,
  tokenizer,
}: Pick<LoadedModel, 'checkpoint' | 'id' | 'model' | 'reference' | 'tokenizer'>): string {
  const template = findChatTemplate(checkpoint.path)?.text;
  const weights = hashOf([...weightsId(reference), tokenizer.hash, template]);
  const { target, isa } = model;
  const device = slug(`${target.name} ${isa} ${deviceName(target.devices.isHost)}`);
  return `w${weights}-p${hashOf([VERSION, id])}-${device}`;
}
