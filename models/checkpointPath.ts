/** What a checkpoint's path must be, before any of its files is read. */
import { basename, dirname, resolve } from 'node:path';
import { UserError } from '../errors.js';
import { kindAt } from '../system/read.js';
import { quoteForShell } from '../system/shell.js';

const WANTED = 'give the folder of a Hugging Face checkpoint: config.json and *.safetensors';
/** `owner/name`: how the hub calls a repository. */
const REPOSITORY = /^[\w-][\w.-]*\/[\w-][\w.-]*$/;

/** Throws UserError, with the command that helps, if `path` is no folder. */
export function checkFolder(path: string): void {
  const found = kindAt(path);
  if (found === 'folder') return;
  if (found !== undefined) {
    const folder = quoteForShell(dirname(path));
    throw new UserError(
      `${path} is a file, and a checkpoint is a folder (or a .gguf file)`,
      path.endsWith('.json')
        ? `give the folder ${folder}, or make weights up for this file: --init random:1`
        : `give the folder ${folder}`,
    );
  }
  throw new UserError(
    `${path}: there is no such folder${path === resolve(path) ? '' : ` in ${process.cwd()}`}`,
    REPOSITORY.test(path)
      ? `nothing is downloaded here; for the hub's ${path}: hf download ${path} --local-dir ${basename(path)}`
      : path.endsWith('.tw')
        ? `make the artifact: tilewright compile CHECKPOINT -o ${quoteForShell(path)}`
        : WANTED,
  );
}
