/** What a checkpoint's path must be, before any of its files is read. */
import { basename, dirname, resolve } from 'node:path';
import { UserError } from '../errors.js';
import { isFolder, kindAt } from '../system/read.js';
import { quoteForShell } from '../system/shell.js';

const WANTED = 'give the folder of a Hugging Face checkpoint (config.json and *.safetensors) or a .gguf file';
const LOCAL = 'models are local folders or .gguf files, and nothing is downloaded here';

const ADDRESS = /^(?:[a-z][a-z0-9+.-]{0,20}:\/\/|(?:www\.)?(?:huggingface\.co|hf\.co)\/)/i;
const PAGE = /^(?:https?:\/\/)?(?:(?:www\.)?(?:huggingface\.co|hf\.co)\/|hf:\/\/)([^?#]{1,1000})/i;
/** How the hub calls a repository, or an owner. */
const NAME = /^\w[\w.-]{0,95}$/;
/** Files and folders of one's own; a hub's name may end in anything else. */
const OWN = /\.(?:tw|json|gguf|safetensors|bin|pth)$/;

/** A model of the hub, as somebody names it. */
interface HubModel {
  /** `owner/name`, or the name alone of the oldest ones. */
  readonly repository: string;
  readonly revision?: string;
  /** A GGUF file of it. */
  readonly file?: string;
}

/** `owner/name`, `owner/name:Q4_K_M` and `owner/name@revision`. */
function readName(text: string): HubModel | undefined {
  const [, repository = '', mark, rest = ''] = /^([^:@]*)([:@])?(.*)$/s.exec(text.replace(/\/$/, '')) ?? [];
  const parts = repository.split('/');
  if (parts.length > 2 || !parts.every((part) => NAME.test(part)) || OWN.test(repository)) return undefined;
  if (mark !== undefined && (parts.length < 2 || !NAME.test(rest))) return undefined;
  return { repository, ...(mark === '@' ? { revision: rest } : {}) };
}

/** `https://huggingface.co/owner/name/tree/main`, also the page of one of its files. */
function readPage(text: string): HubModel | undefined {
  const parts = (PAGE.exec(text)?.[1] ?? '').split('/').filter((part) => part !== '');
  const at = parts.findIndex((part) => /^(?:tree|blob|resolve|raw)$/.test(part));
  const name = readName(parts.slice(0, at < 1 ? 2 : at).join('/'));
  if (name === undefined || /^(?:datasets|spaces|collections)$/.test(parts[0]!)) return undefined;
  const [revision, ...file] = at < 1 ? [] : parts.slice(at + 1);
  return {
    ...name,
    ...(revision === undefined || revision === 'main' ? {} : { revision }),
    ...(file.at(-1)?.endsWith('.gguf') === true ? { file: file.join('/') } : {}),
  };
}

/**
 * What a path names that is no folder; undefined if that may be anything. Names without an owner are told from slips of
 * the finger by the digit or hyphen that all but a few of them have.
 */
const hubModel = (path: string): HubModel | undefined =>
  ADDRESS.test(path) ? readPage(path) : /[\d/-]/.test(path) ? readName(path) : undefined;

/** The command that gets a model from the hub, and the folder that it then is in. */
function download({ repository, revision, file }: HubModel): string {
  const words = [
    repository,
    ...(file === undefined ? [] : [file]),
    ...(revision === undefined ? [] : ['--revision', revision]),
  ];
  return `hf download ${[...words, '--local-dir', basename(repository)].map(quoteForShell).join(' ')}`;
}

function absent(path: string): UserError {
  const isAddress = ADDRESS.test(path);
  const what = isAddress ? 'is a web address' : path.endsWith('.gguf') ? 'no such file' : 'there is no such folder';
  const message = `${path}: ${what}${isAddress || path === resolve(path) ? '' : ` in ${process.cwd()}`}`;
  if (path.endsWith('.tw'))
    return new UserError(message, `make the artifact: tilewright compile CHECKPOINT -o ${quoteForShell(path)}`);
  const model = hubModel(path);
  if (model === undefined) return new UserError(message, isAddress ? `${LOCAL}: ${WANTED}` : WANTED);
  const folder = basename(model.repository);
  const here = folder !== path && isFolder(folder) ? `; if ${quoteForShell(folder)} is that model, give it` : '';
  return new UserError(message, `${LOCAL}${here}; for the hub's ${model.repository}: ${download(model)}`);
}

/** Throws UserError, with the command that helps, where nothing is at the path of a model. */
export function requireModelAt(path: string): void {
  if (kindAt(path) === undefined) throw absent(path);
}

/** What can only be meant as a path. */
const PATH = /^(?:\.{0,2}\/|~|$)|\s/;

/**
 * Throws UserError where `path` is the name or the page of a model of the hub, or written as a path, and nothing is
 * there.
 */
export function refuseHubName(path: string): void {
  if (PATH.test(path) || ADDRESS.test(path) || hubModel(path) !== undefined) requireModelAt(path);
}

/** Throws UserError, with the command that helps, if `path` is no folder. */
export function checkFolder(path: string): void {
  requireModelAt(path);
  if (isFolder(path)) return;
  const folder = quoteForShell(dirname(path));
  throw new UserError(
    `${path} is a file, and a checkpoint is a folder (or a .gguf file)`,
    path.endsWith('.json')
      ? `give the folder ${folder}, or make weights up for this file: --init random:1`
      : `give the folder ${folder}`,
  );
}
