/** Texts of files. Preact escapes them; what would be invisible or turn other text around is shown by its number. */
import { type ComponentChildren, Fragment } from 'preact';
import { useState } from 'preact/hooks';

/** Controls, marks of direction, and characters without a width. Line breaks and tabs are kept. */
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;
const SPLIT = new RegExp(`(${INVISIBLE.source})`, 'g');

const codeOf = (character: string): string =>
  `U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`;

/** The same for text in charts, which knows no elements. */
export const visible = (text: string): string => text.replace(new RegExp(INVISIBLE.source, 'g'), codeOf);

/** A text that cannot act on what is around it. */
export function Shown({ text }: { readonly text: string }) {
  if (!INVISIBLE.test(text)) return <bdi>{text}</bdi>;
  return (
    <bdi>
      {text.split(SPLIT).map((part, i) =>
        i % 2 === 0 ? (
          part
        ) : (
          <span key={i} class="code" title="A character that is not visible">
            {codeOf(part)}
          </span>
        ),
      )}
    </bdi>
  );
}

/** A name that may break behind what joins its words: a narrow page shows all of it. */
export function Name({ text }: { readonly text: string }) {
  if (INVISIBLE.test(text)) return <Shown text={text} />;
  return (
    <bdi>
      {text.split(/(?<=[_./\\,:-])(?=[^_./\\,:-])/).map((part, i) => (
        <Fragment key={i}>
          {i > 0 && <wbr />}
          {part}
        </Fragment>
      ))}
    </bdi>
  );
}

const CUT = 1200;
const number = new Intl.NumberFormat('en-US');

/** A text that may be long: cut, with a button that shows all of it. `note` says what the page itself left out. */
export function LongText({ text, cut = CUT }: { readonly text: string; readonly cut?: number }) {
  const [isWhole, setWhole] = useState(false);
  if (text.length <= cut + 200) return <Shown text={text} />;
  return (
    <>
      <Shown text={isWhole ? text : `${text.slice(0, cut)}…`} />{' '}
      <button type="button" class="more" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>
        {isWhole ? 'Show less' : `Show all ${number.format(text.length)} characters`}
      </button>
    </>
  );
}

/** Names and what they stand for, side by side. */

interface FactsProps {
  readonly facts: readonly (readonly [name: string, value: string])[];
  readonly isSmall?: boolean;
}

export const Facts = ({ facts, isSmall = false }: FactsProps) => (
  <dl class={isSmall ? 'facts small' : 'facts'}>
    {facts.map(([name, value]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>
          <Shown text={value} />
        </dd>
      </div>
    ))}
  </dl>
);

/** Choosing one of a few things: nothing to choose is not shown. */
export interface ChooseProps<T extends string> {
  readonly label: string;
  readonly value: T;
  readonly options: readonly { readonly value: T; readonly title: string }[];
  readonly onChange: (value: T) => void;
  readonly isShownAlone?: boolean;
}

export function Choose<T extends string>({ label, value, options, onChange, isShownAlone = false }: ChooseProps<T>) {
  if (options.length < 2 && !isShownAlone) return null;
  return (
    <label class="choose">
      <span>{label}</span>
      <select
        aria-label={label}
        value={value}
        onChange={({ currentTarget }) => {
          const chosen = options.find((option) => option.value === currentTarget.value);
          if (chosen !== undefined) onChange(chosen.value);
        }}
      >
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.title}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A table with a caption, in which numbers are aligned right. */

export interface Column {
  readonly title: string;
  /** Numbers. */
  readonly isRight?: boolean;
}

export interface TableProps {
  readonly caption: string;
  readonly columns: readonly Column[];
  /** Cells by columns; the first of a row names it. */
  readonly rows: readonly (readonly ComponentChildren[])[];
  /** Whether sighted readers see the caption above it already. */
  readonly hidesCaption?: boolean;
  /** What explains a mark in a cell. */
  readonly note?: string | undefined;
}

export function Table({ caption, columns, rows, hidesCaption = false, note }: TableProps) {
  const table = (
    <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption class={hidesCaption ? 'hidden' : undefined}>
          <span>{caption}</span>
        </caption>
        <thead>
          <tr>
            {columns.map(({ title, isRight }) => (
              <th key={title} scope="col" class={isRight === true ? 'right' : undefined}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((cells, row) => (
            <tr key={row}>
              {cells.map((cell, i) =>
                i === 0 ? (
                  <th key={i} scope="row">
                    {cell}
                  </th>
                ) : (
                  <td key={i} class={columns[i]?.isRight === true ? 'right' : undefined}>
                    {cell}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
  return note === undefined ? (
    table
  ) : (
    <>
      {table}
      <p class="note">{note}</p>
    </>
  );
}
