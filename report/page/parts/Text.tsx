/** Texts of files. Preact escapes them; what would be invisible or turn other text around is shown by its number. */
import { Fragment } from 'preact';
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
