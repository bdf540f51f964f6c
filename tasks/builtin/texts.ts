/** Tasks that score a text itself: LAMBADA's last word, and the pages of WikiText. */
import { decontaminated, hook, mean, version, type Definitions, type WrittenMap } from './define.js';

const lastWord = (): WrittenMap => ({
  output_type: 'loglikelihood',
  test_split: 'test',
  doc_to_text: "{{text.split(' ')[:-1]|join(' ')}}",
  doc_to_target: "{{' '+text.split(' ')[-1]}}",
  ...decontaminated('{{text}}'),
  metric_list: [{ metric: 'perplexity', aggregation: 'perplexity', higher_is_better: false }, mean('acc')],
  ...version(1),
});

export function texts(all: Definitions): void {
  const tags = ['lambada'];
  const openai = { dataset_path: 'EleutherAI/lambada_openai', dataset_name: 'default' };
  all.task('lambada_openai', () => ({ ...lastWord(), ...openai }), tags);
  const standard = { dataset_path: 'cimec/lambada', validation_split: 'validation' };
  all.task('lambada_standard', () => ({ ...lastWord(), ...standard }), tags);
  all.task('wikitext', () => ({
    output_type: 'loglikelihood_rolling',
    dataset_path: 'EleutherAI/wikitext_document_level',
    dataset_name: 'wikitext-2-raw-v1',
    training_split: 'train',
    validation_split: 'validation',
    test_split: 'test',
    doc_to_text: '',
    doc_to_target: hook('wikitext', 'preprocess_wikitext.wikitext_detokenizer'),
    process_results: hook('wikitext', 'preprocess_wikitext.process_results'),
    ...decontaminated('{{page}}'),
    metric_list: ['word_perplexity', 'byte_perplexity', 'bits_per_byte'].map((metric) => ({ metric })),
    ...version(2),
  }));
}
