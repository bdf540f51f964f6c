/** A table with a caption, in which numbers are aligned right. */
import type { ComponentChildren } from 'preact';

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
