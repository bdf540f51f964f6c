/** Command R7B and A (arXiv:2504.00698): blocks side by side behind one LayerNorm, and no angles without a window. */
import { readBiases } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import { readNumber } from '../decoder/settings.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import { readWindows } from '../decoder/window.js';

/** One layer in this many has no window, if a file does not say. */
const PATTERN = 4;

export const cohere2 = decoderFamily({
  name: 'Cohere2ForCausalLM',
  modelType: 'cohere2',
  covers: 'Command R7B, Command A',
  maxPositions: 8192,
  epsilonKey: 'layer_norm_eps',
  epsilon: 1e-5,
  hasInterleavedPairs: true,
  isTied: true,
  names: { ...LLAMA_NAMES, norms: { attention: { before: 'input_layernorm' }, ffn: {} } },
  differences: (json, where) => {
    // Files with _sliding_window_pattern have layer_types, which are what is read.
    const pattern = readNumber(json, where, 'sliding_window_pattern', PATTERN, [1, 1024]);
    const windows = readWindows(json, where, 4096, (layer) => (layer + 1) % pattern !== 0);
    return {
      biased: readBiases({ attention_bias: json['attention_bias'] }, where),
      norm: { kind: 'layer', offset: 0, hasBias: false },
      parallel: 'one norm',
      windows,
      unrotated: windows.flatMap((window, layer) => (window === null ? [layer] : [])),
      factors: { logits: readNumber(json, where, 'logit_scale', 0.0625) },
    };
  },
});
