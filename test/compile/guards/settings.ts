/** Classes of a file that nothing of is compiled. */

class Inner {
  k = 1;
}

export class Outer {
  readonly inner = new Inner();
}
