/** Which answers of a problem are one: they vote together. */

/** The class of each answer: classes are numbered in the order in which they come. */
export function classesOf(answers: readonly string[]): readonly number[] {
  const known = new Map<string, number>();
  return answers.map((answer) => {
    const number = known.get(answer) ?? known.size;
    known.set(answer, number);
    return number;
  });
}
