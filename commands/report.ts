/** `tilewright report`: results as one page that opens from a disk. */
import { statSync } from 'node:fs';
import { collectReport, type ReportRequest } from '../report/collect/collectReport.js';
import { writePage } from '../report/writePage.js';
import { prepareFile } from '../system/write.js';

export interface WriteReportRequest extends ReportRequest {
  readonly output: string;
}

/** What was written, as `report --json` prints it. */
export interface WrittenReport {
  readonly path: string;
  readonly bytes: number;
  readonly title: string;
  /** Names of the page's blocks of data. */
  readonly blocks: readonly string[];
  /** What was amiss and left out. */
  readonly notes: readonly string[];
}

/** Throws UserError for what cannot be read or written. */
export function report({ output, ...request }: WriteReportRequest): WrittenReport {
  prepareFile(output);
  const { about, blocks, notes } = collectReport(request);
  const names: string[] = [];
  writePage(output, {
    app: 'report',
    title: about.title,
    blocks: (function* () {
      for (const each of blocks) {
        names.push(each.name);
        yield each;
      }
    })(),
  });
  return { path: output, bytes: statSync(output).size, title: about.title, blocks: names, notes };
}
