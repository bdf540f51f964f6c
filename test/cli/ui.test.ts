import { afterEach, describe, expect, it } from 'vitest';
import { describeRun, fractionOf, type LiveUi, StepText } from '../../cli/plainUi.js';
import { makeUi, progressLine } from '../../cli/ui.js';
import { type RunProgress, stepTo } from '../../driver/requests.js';
import { bytes, clock, cut, duration, si, textTable } from '../../system/text.js';
import { fakeIo } from './fakeIo.js';

const progress = (done: number, more: Partial<RunProgress> = {}): RunProgress => ({
  questionsDone: done,
  questionsTotal: 10042,
  tokensDone: done * 175,
  tokensTotal: 10042 * 175,
  accuracy: 0.288,
  accuracyNorm: 0.2891,
  tokensPerSecond: 18300,
  secondsLeft: 41,
  ...more,
});

const open: LiveUi[] = [];
afterEach(() => {
  open.splice(0).forEach((ui) => {
    ui.close();
  });
});

function start(options: Parameters<typeof fakeIo>[0]): { io: ReturnType<typeof fakeIo>; ui: LiveUi } {
  const io = fakeIo(options);
  const ui = makeUi(io, { isJson: false, isQuiet: false });
  open.push(ui);
  return { io, ui };
}

describe('plain lines', () => {
  it('appear once for each phase, then at most every 5 s and 5 %', () => {
    const { io, ui } = start({ isTTY: false });
    ui.phase('compile', 'demo');
    ui.phase('score');
    for (let second = 0; second <= 100; second++) {
      io.time = second * 1000;
      ui.run(progress(Math.ceil((10042 * second) / 100)));
    }
    const lines = io.stderr.text.trimEnd().split('\n');
    expect(lines.slice(0, 3)).toEqual([
      '[0.00 s] compile: demo',
      '[0.00 s] score',
      '[5.00 s] score: 5 %, 503/10,042 questions · 18,300 tokens/s · acc 28.8 %, acc_norm 28.9 % · 0:41 left',
    ]);
    const shares = lines.slice(2).map((line) => Number(/(\d+) %/.exec(line)?.[1]));
    expect(shares.length).toBeGreaterThan(15);
    // The last line is the end, however little was left.
    for (let i = 1; i < shares.length - 1; i++) expect(shares[i]! - shares[i - 1]!).toBeGreaterThanOrEqual(5);
    expect(lines.at(-1)).toBe(
      '[1 min 40 s] score: 100 %, 10,042/10,042 questions · 18,300 tokens/s · acc 28.8 %, acc_norm 28.9 %',
    );
    expect(io.stderr.text).not.toContain('\x1b');
    expect(io.stdout.text).toBe('');
  });

  it('appear once a minute if little happens', () => {
    const { io, ui } = start({ isTTY: false });
    ui.phase('score');
    for (let second = 1; second <= 600; second++) {
      io.time = second * 1000;
      ui.run(progress(second));
    }
    expect(io.stderr.text.trimEnd().split('\n')).toHaveLength(1 + 10);
  });

  it('appear once for a short run, at its end', () => {
    const { io, ui } = start({ isTTY: false });
    ui.phase('score');
    for (const done of [0, 5000, 10042]) ui.run(progress(done));
    ui.close();
    ui.note('too late');
    expect(io.stderr.text.trimEnd().split('\n')).toHaveLength(2);
  });

  it('start every line of a note with the time', () => {
    const { io, ui } = start({ isTTY: false });
    ui.note('a\nb');
    ui.warn('c');
    expect(io.stderr.text).toBe('[0.00 s] a\n[0.00 s]   b\n[0.00 s] warning: c\n');
  });

  it('show the table of a long tuning from time to time', () => {
    const { io, ui } = start({ isTTY: false });
    for (let second = 0; second < 130; second++) {
      io.time = second * 1000;
      ui.table([`row ${second}`]);
    }
    expect(io.stderr.text.trimEnd().split('\n')).toEqual(['[1 min] row 60', '[2 min] row 120']);
  });
});

/** What a terminal shows: as much of a terminal as our output needs. */
function screen(text: string): string[] {
  const lines = [''];
  let [row, column, saved] = [0, 0, 0];
  for (const match of text.matchAll(/\x1b\[\?\d+[hl]|\x1b([78])|\x1b\[(\d*)([A-Z])|(\r)|(\n)|([^\x1b\r\n]+)/g)) {
    const [, saving, count = '', command, isReturn, isLine, words] = match;
    if (saving === '7') saved = column;
    else if (saving === '8') column = saved;
    else if (isReturn !== undefined) column = 0;
    else if (isLine !== undefined) {
      row++;
      column = 0;
      lines[row] ??= '';
    } else if (words !== undefined) {
      lines[row] = lines[row]!.slice(0, column).padEnd(column) + words + lines[row]!.slice(column + words.length);
      column += words.length;
    } else if (command === 'A') row -= Number(count || 1);
    else if (command === 'G') column = Number(count || 1) - 1;
    else if (command === 'J') {
      lines[row] = lines[row]!.slice(0, column);
      lines.splice(row + 1);
    } else if (command === 'K') lines[row] = count === '2' ? '' : lines[row]!.slice(0, column);
    else if (command !== undefined) throw new Error(`unknown command ${match[0]}`);
  }
  return lines;
}

describe('a terminal', () => {
  it('keeps finished phases and redraws the running one', () => {
    const { io, ui } = start({ isTTY: true });
    ui.phase('open model', 'models/demo');
    io.time = 1500;
    ui.phase('score', '10042 questions');
    ui.run(progress(0));
    expect(screen(io.stderr.text)[0]).toBe('open model  1.50 s  models/demo');
    expect(screen(io.stderr.text)[1]).toContain('score');
    ui.run(progress(10042));
    io.time = 4500;
    ui.close();
    expect(screen(io.stderr.text)).toEqual([
      'open model  1.50 s  models/demo',
      'score  3.00 s  10,042/10,042 questions · 18,300 tokens/s · acc 28.8 %, acc_norm 28.9 %',
      '',
    ]);
    expect(io.stdout.text).toBe('');
  });

  it('writes notes above what is running', () => {
    const { io, ui } = start({ isTTY: true });
    ui.phase('load weights');
    ui.step(0.5);
    ui.note('a note');
    ui.step(0.75);
    const lines = screen(io.stderr.text);
    expect(lines[0]).toBe('a note');
    expect(lines[1]).toMatch(/^load weights  75 % █+░+$/);
  });

  it('redraws a table in place and leaves none of it behind', () => {
    const { io, ui } = start({ isTTY: true, columns: 20 });
    ui.phase('tune');
    ui.table(['kernel  trials', 'qkv     1']);
    io.time = 1000;
    ui.table(['kernel  trials', 'qkv     2', 'a row that is longer than the terminal']);
    expect(screen(io.stderr.text)).toEqual(['kernel  trials', 'qkv     2', 'a row that is long…', '']);
    ui.note('note');
    expect(screen(io.stderr.text).slice(0, 3)).toEqual(['note', 'kernel  trials', 'qkv     2']);
    ui.close();
    expect(screen(io.stderr.text)).toEqual(['note', 'tune  1.00 s', '']);
  });

  it('shows progress below a table', () => {
    const { io, ui } = start({ isTTY: true });
    ui.phase('tune');
    ui.step(0.25, '3 trials');
    ui.table(['kernel  trials']);
    expect(screen(io.stderr.text)).toEqual(['kernel  trials', 'tune  25 % ██████░░░░░░░░░░░░░░░░░░  3 trials', '']);
    io.time = 1000;
    ui.step(0.5, '4 trials');
    expect(screen(io.stderr.text)[1]).toContain('tune  50 % ████████████░');
    expect(screen(io.stderr.text)).toHaveLength(3);
    ui.close();
    expect(screen(io.stderr.text)).toEqual(['tune  1.00 s', '']);
  });

  it('cuts a table that is higher than the terminal', () => {
    const { io, ui } = start({ isTTY: true });
    ui.table(Array.from({ length: 50 }, (_, i) => `row ${i}`));
    const lines = screen(io.stderr.text);
    expect(lines).toHaveLength(10 + 1);
    expect(lines[9]).toBe('… 41 more');
  });

  it('gets its cursor back', () => {
    const { io, ui } = start({ isTTY: true });
    ui.phase('score');
    ui.run(progress(1));
    ui.close();
    expect(io.stderr.text.match(/\x1b\[\?25l/g)?.length).toBe(io.stderr.text.match(/\x1b\[\?25h/g)?.length);
    const before = io.stderr.text;
    ui.run(progress(2));
    ui.phase('more');
    ui.note('more');
    expect(io.stderr.text).toBe(before);
  });
});

describe('the words of a run', () => {
  it('fit the terminal, and the bar takes the remaining width', () => {
    const words = describeRun(progress(4321), true);
    expect(words).toBe('4,321/10,042 · 18,300 tokens/s · acc 28.8 %, acc_norm 28.9 % · 0:41 left');
    expect(progressLine('score', 0.5, words, 79)).toBe(cut(`score  50 %  ${words}`, 79));
    expect(progressLine('score', 0.5, 'x', 30)).toBe('score  50 % ████████░░░░░░░  x');
    expect(progressLine('score', 2, '', 200)).toBe(`score 200 % ${'█'.repeat(24)}`);
    for (let width = 0; width < 120; width++)
      expect(progressLine('score', 0.3, words, width).length).toBeLessThanOrEqual(width);
  });

  it('are there before the run has anything to report', () => {
    expect(
      describeRun(
        progress(0, { accuracy: undefined, accuracyNorm: undefined, secondsLeft: undefined, tokensPerSecond: 0 }),
      ),
    ).toBe('0/10,042 questions');
    expect(fractionOf(progress(0, { tokensTotal: 0 }))).toBe(0);
    expect(fractionOf(progress(10042, { tokensTotal: 0, tokensDone: 0 }))).toBe(1);
  });

  it('of a step say what is done, how fast, and the time left', () => {
    const kernels = (done: number): { done: number; total: number; unit: 'kernels' } => ({
      done,
      total: 40,
      unit: 'kernels',
    });
    const text = new StepText(0);
    // Twelve were in the cache: they say nothing about how fast the others are compiled.
    expect(text.describe(kernels(12), 100)).toBe('12 of 40 kernels');
    expect(text.describe(kernels(13), 600)).toBe('13 of 40 kernels');
    expect(text.describe(kernels(22), 5100)).toBe('22 of 40 kernels · 2/s · 0:09 left');
    expect(text.describe(kernels(40), 14_100)).toBe('40 of 40 kernels · 2/s');
    expect(new StepText(0).describe({ done: 2 ** 30, total: 2 ** 32, unit: 'bytes' }, 4000)).toBe(
      '1 GiB of 4 GiB · 256 MiB/s · 0:12 left',
    );
    expect([new StepText(0).describe('words', 9000), new StepText(0).describe(undefined, 9000)]).toEqual([
      'words',
      undefined,
    ]);
  });

  it.each([true, false])('of a step are beside the bar and in plain lines (terminal: %s)', (isTTY) => {
    const { io, ui } = start({ isTTY });
    ui.phase('compile kernels');
    io.time = 10_000;
    stepTo(ui, { done: 5, total: 40, unit: 'kernels' });
    // A note draws the bar again, which is otherwise drawn only now and then.
    if (isTTY) ui.note('note');
    stepTo(ui, { done: 5, total: 40, unit: 'kernels' });
    const text = isTTY ? (screen(io.stderr.text)[1] ?? '') : io.stderr.text;
    if (!isTTY) expect(text).toContain('compile kernels: 13 %, 5 of 40 kernels · 0.5/s · 1:10 left\n');
    else expect(text).toMatch(/^compile kernels {2}13 % █+░+ {2}5 of 40 kernels · 0\.5\/s · 1:10 left/);
  });

  it('numbers', () => {
    expect([0, 1023, 1024, 15.3 * 2 ** 20, 3 * 2 ** 40].map(bytes)).toEqual([
      '0 bytes',
      '1,023 bytes',
      '1 KiB',
      '15.3 MiB',
      '3 TiB',
    ]);
    expect([7, 999, 1000, 14.66e9, 999.7e9].map((value) => si(value, 'FLOP'))).toEqual([
      '7 FLOP',
      '999 FLOP',
      '1 kFLOP',
      '14.7 GFLOP',
      '1 TFLOP',
    ]);
    expect([0, 59.6, 3661].map(clock)).toEqual(['0:00', '1:00', '1:01:01']);
    expect([0.123, 12.34, 59.97, 169, 3599.7, 7322].map(duration)).toEqual([
      '0.12 s',
      '12.3 s',
      '1 min',
      '2 min 49 s',
      '1 h',
      '2 h 2 min',
    ]);
    expect([1, 262_620 * 2 ** 20, 1023.7 * 1024].map(bytes)).toEqual(['1 byte', '256 GiB', '1 MiB']);
    expect(
      textTable(
        [
          ['a', '1'],
          ['bbb', '22'],
        ],
        new Set([1]),
      ),
    ).toEqual(['a     1', 'bbb  22']);
  });
});
