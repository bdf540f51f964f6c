/** How messages name a question, and what they advise where one is in the way. */

export interface Named {
  readonly docId: number;
  /** Where it is from, if it is not from a file of questions: `arc_easy, document 3`. */
  readonly where?: string | undefined;
}

export const questionName = ({ docId, where }: Named): string => where ?? `question ${docId}`;

/** `ofFile`: what leaves out a question of a file. Documents of tasks have no --docs. */
export const leaveOut = ({ where }: Named, ofFile: string): string =>
  where === undefined ? ofFile : 'leave its task out, or name the documents that are to be scored with --samples';
