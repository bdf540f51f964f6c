/**
 * Python files beside task files. They are not read: functions of tilewright take the places of theirs. Where a file
 * is not the one that those were written after, a run says so.
 */
import { createHash } from 'node:crypto';
import { dirname, join } from 'node:path';
import { fileSize, readBounded } from '../../system/read.js';
import type { TaskSettings } from '../definition/settings.js';
import { Hook, type Yaml } from '../definition/yaml.js';

const MAX_BYTES = 4 << 20;

/** SHA-256 of the public harness's files, as they were when the functions were written. */
const KNOWN: ReadonlySet<string> = new Set([
  '07d23b60b28f2a4f658dcf8440623a63fe6644854ce9b846a114dde980dc1214', // hellaswag
  'e55327629264a98f1d383fda24645b6779afb53fa0bce2150042b9416b1ae006', // winogrande
  '0be98a907db647a518c42c916a61385b64f394cf9d0171b5cb86b7a036282de7', // copa
  '15778ab69ca3b96c3d82618500ad59702ff7ea9dbf09e90e4505abc16ac53ad0', // race
  '9da42ec170310d8eaac3964994eb02d150e52e0f4514553e395c2a3174c25dd4', // musr
  'a44020374b172159bf5be80a64d2c4194c9d5c77284f696ac666361338c8da7d', // wikitext
  'd3c827d1e2cd442a1e4738b527a18effd48cbb2aed478c12a652311b5ea4dbc8', // truthfulqa
  'd47eae06ecf1e9535b033394de62185327a1dca977cb29049003699adeb92801', // mmlu_pro
  '49a014c4dc39902071760182858e6b4d42aaaa917a440e71a165bdff75085487', // leaderboard_mmlu_pro
  '21901ae19d06c75c1490026f98be390e8b522b1d0d7cdce4f77740b344072883', // leaderboard_gpqa
  '7c755f2c3f8f4ac20de96fb68941c43424d2ded0552d5ab81e672e15c410655c', // gpqa_*_zeroshot
  'b603828710f1fb3e1b8fe42726b188544ef8dbd12d25f4ca676e42ca4d1a251b', // gpqa with texts
  '46399f40065469d234c0c9e1ef3de9b67e50d5fe1c2c4130607eda2dda268260', // logiqa
  '0ad23be566a13d9bce46421a77fb2b146499e9b5271a565fffab181e400ff743', // logiqa2
  '345aa27870efd145f970456632622efc617b299a4d00abc9459242d2c696d342', // mathqa
  '06adc6ef5bda3259fe547355e6b064ca57c674b502fac749d0a0ccc8fee91787', // medqa
  'b9cbe33d51b95624b9317cab8ffb917b32c178aaa100fd9ce4aac0a9c467479b', // medmcqa
  '43528eee61666d94ae9ac3d58bcd3a0c38182a8898f996f536be9de1d3655740', // pubmedqa
  'db3099bba72b47a29018221bbca9a9d44f043b5bf4fbc9df93b8081687ba895e', // mnli
  '55c93da7005300ce496a18bce8251febab8acd36b8c4d8875679ff432c2031f9', // arithmetic
  '2c295d37e8d75f58a5ce948839d20cb9971d1c0d7627878291bebd4584c63507', // wsc273
  'd215e4f91a77a3c949b48bc0f6e30f42a31bcb2127af848780e537b60e799ddf', // arc_challenge of chat models
  'ec32f0bfecb45d80220279522ac046ef2ac3f7890444798b56ac29348b27355d', // xwinograd
  'b4012dd2b1a508885d23ee2ddb12bc26f3e622081ba41ec1ab766edc31a4982b', // global_mmlu_full
  '9776c2ffc09ae0569d2cea41856f7a9c712a38362c8ea33ac61239005062df0f', // global_mmlu
  '49aaaf0034ee7413385b68533fa22f5d664dc4c97f814985c353156f6ad6a85d', // openai_mmmlu
  'ffe5920d8ee35daa9271be669629b928a76ac82ede88bdb21683c56785efa474', // bigbench
  '1ab8f14808c826f93f2364883487ed63cf4267980bf4761fda8053899c013632', // ifeval
  'ac7865eec34c588da832eac8f5b2602275cf0b51ee2effa5674ed319d7db104d', // leaderboard_math_hard
  '1faaca748bffd4ac209fd43671c40ecc08f081d6e74d279a3e62ca0c11335305', // bbh_zeroshot, bbh_cot_zeroshot
]);

function hooksIn(value: Yaml): Hook[] {
  if (value instanceof Hook) return [value];
  if (Array.isArray(value)) return (value as readonly Yaml[]).flatMap(hooksIn);
  return value instanceof Map ? [...(value as ReadonlyMap<string, Yaml>).values()].flatMap(hooksIn) : [];
}

/** `utils.process_docs` beside a/b.yaml is in a/utils.py. */
const moduleOf = ({ file, name }: Hook): string =>
  `${join(
    dirname(file),
    ...name
      .split('.')
      .slice(0, -1)
      .filter((part) => /^\w+$/.test(part)),
  )}.py`;

function isKnown(path: string): boolean {
  try {
    return KNOWN.has(createHash('sha256').update(readBounded(path, MAX_BYTES)).digest('hex'));
  } catch {
    return false;
  }
}

/** A line for each Python file that is there and may do something else than what takes its place. */
export function unreadModules(tasks: readonly TaskSettings[]): string[] {
  const names = new Map<string, Set<string>>();
  for (const settings of tasks)
    for (const hook of [...settings.values()].flatMap(({ value }) => hooksIn(value)))
      names.set(moduleOf(hook), (names.get(moduleOf(hook)) ?? new Set()).add(hook.name));
  return [...names].flatMap(([path, functions]) => {
    if (fileSize(path) === undefined || isKnown(path)) return [];
    const verb = functions.size > 1 ? 'are' : 'is';
    return [`${path} is not read: tilewright's own ${[...functions].join(', ')} ${verb} used`];
  });
}
