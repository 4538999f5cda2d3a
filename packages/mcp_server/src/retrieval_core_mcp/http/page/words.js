// Every label and sentence of the page. No other module has English.

export const count = (number, one) => `${number.toLocaleString()} ${one}${number === 1 ? "" : "s"}`;
export const chunks = (number) => count(number, "chunk");
export const documents = (number) => count(number, "document");

export function shortNumber(value) {
  if (value == null) return "";
  if (Number.isInteger(value)) return value.toLocaleString();
  if (Math.abs(value) < 0.001) return `< ${(0.001).toLocaleString()}`;
  return value.toLocaleString(undefined, { maximumSignificantDigits: 3 });
}

export function day(moment) {
  const date = new Date(moment || Number.NaN);
  return Number.isNaN(date.valueOf()) ? "" : date.toLocaleDateString(undefined, { dateStyle: "medium" });
}

export function duration(milliseconds) {
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${shortNumber(milliseconds / 1000)} s`;
}

export function size(bytes) {
  if (bytes < 1000) return count(bytes, "byte");
  return bytes < 1e6 ? `${shortNumber(bytes / 1000)} kB` : `${shortNumber(bytes / 1e6)} MB`;
}

export function level(chance) {
  if (chance >= 2 / 3) return "high";
  return chance >= 1 / 3 ? "medium" : "low";
}

export const isPdf = ({ source }) => /\.pdf$/i.test(source);
export const pageName = (source) => (/\.pptx$/i.test(source) ? "slide" : "page");

const range = (name, [first, last = first]) => (first === last ? `${name} ${first}` : `${name}s ${first}–${last}`);

export const pageRange = (span, source) => (span?.length ? range(pageName(source), span) : "");
export const lineRange = (lines) => (lines ? range("line", lines) : "");

// The rows of a table file, such as CSV. A table within a text has lines, which say more.
export const rowRange = ({ row_range: rows, page_span: pages, lines }) =>
  rows && !pages && !lines ? range("row", rows) : "";

// The way to cite a chunk: `file:lines`, a page of its file, or a row of its table; and which of several indexes.
export function citationOf(chunk) {
  const { source, document_id: id, page_span: pages, lines, index } = chunk;
  const name = source ?? id;
  const place = pageRange(pages, name) || rowRange(chunk);
  const numbers = lines ? `:${[...new Set(lines)].join("-")}` : "";
  return `${name}${place ? `, ${place}` : numbers}${index ? ` (${index})` : ""}`;
}

export const MODES = { __proto__: null, "": "default", hybrid: "hybrid", dense: "vector", lexical: "keyword" };

export const STAGES = {
  __proto__: null,
  version: "read the index version",
  cache: "look in the cache",
  similar: "look for a similar cached query",
  transform: "rewrite the query",
  embed: "embed the query",
  dense: "vector search",
  lexical: "keyword search",
  hybrid: "hybrid search",
  fuse: "fuse both rankings",
  merge: "merge the indexes",
  fetch: "load the chunks",
  rerank: "rerank",
  threshold: "apply the score threshold",
  diversify: "remove near duplicates",
  filter: "filter by relevance",
};

export const FALLBACKS = {
  __proto__: null,
  filter: "Filter",
  embed: "Keyword search only",
  dense: "Vector search",
  lexical: "Keyword search",
  rerank: "Not reranked",
  condense: "Follow-up question not rewritten",
  cache: "Without the cache",
  verify_answer: "Not verified",
};

export const ROLES = {
  __proto__: null,
  primary: "result",
  parent: "section",
  sibling: "same section",
  cross_page: "neighbour",
};

export const KINDS = {
  __proto__: null,
  extracted: "Sentences from your documents. To get written answers, configure a language model: llm.kind.",
  failed: "Sentences from your documents, because the language model failed.",
  without_documents: "Written without your documents, because they could not be searched. Check it elsewhere.",
};

export const DOUBTS = {
  __proto__: null,
  unsupported: "No source supports this sentence.",
  contradicted: "A source contradicts this sentence.",
  unknown: "This source does not exist.",
};

export const FAILURES = {
  unreachable: "The server cannot be reached. It may have stopped: look at the window where it was started.",
  interrupted: "The connection was lost before the answer was complete.",
  unreadable: "The server sent something that this page can't read. Reload the page.",
  cancelled: "Stopped.",
  filter: "The filter in the address is not valid JSON. Remove it, or write it again.",
  status: (status) => `The server answered with status ${status}.`,
};

export const OPERATORS = {
  __proto__: null,
  $eq: "is",
  $ne: "is not",
  $text: "contains",
  $contains: "has",
  $gte: "at least",
  $lte: "at most",
};

export const TEXT = {
  ask: "Ask",
  files: "Files",
  copy: "Copy",
  copied: "Copied",
  notCopied: "The browser doesn't allow copying",
  copyAnswer: "Copy with sources",
  searching: "Searching…",
  answering: "Looking for the answer…",
  stop: "Stop",
  stopped: "Stopped. The text so far is kept.",
  brokenOff: "The answer is incomplete.",
  complete: "The answer is complete.",
  tryAgain: "Try again",
  nothing: "No results.",
  narrow: "The filter may be too narrow.",
  withoutFilter: "Search without it",
  isItThere: "Is the document indexed?",
  lookAtFiles: "See the files",
  incomplete: "The search was incomplete: the part that was searched has no results.",
  named: "The document with this name: ",
  showAll: "Show all",
  inspect: "Inspect",
  why: "Why",
  context: "Context",
  compare: "Compare",
  noAnswer: (words) => `No answer in these documents${words.length ? `: no chunk contains ${words.join(", ")}` : ""}.`,
  askNext: "Ask a follow-up question",
  newQuestion: "New question",
  earlier: (turns) => `After ${count(turns, "earlier question")}`,
  searchBy: "Search",
  resultCount: "Results",
  question: "Question",
  placeholder: "Ask a question, or search for a name or an error text",
  tokenTitle: "This server needs a token",
  tokenRefused: "This token was not accepted.",
  tokenHint: "Ask the person who runs the server for it. This tab keeps it until you close it.",
  token: "Token",
  goOn: "Continue",
  welcome: "Ask something about these documents.",
  topics: "Topics",
  addFiles: "Add files",
  readOnly: "This server is read-only. To add files, run retrieval index FOLDER, or start it with --allow-writes.",
  red: "This index can't be read, or was not made yet. See the server's log, or run: retrieval index FOLDER",
  empty: "This index is empty. To add files, run: retrieval index FOLDER",
  embedding: (share, isStuck) => `indexing: ${share} embedded${isStuck ? ". Reload the page to see more" : ""}`,
  allIndexes: "All indexes",
  someIndexes: (number) => `${number} indexes`,
  ofIndexes: (chosen, all) => `${chosen} of ${all} indexes`,
  chosenIndexes: "Indexes to search",
  answer: "Answer",
  table: "Table",
  inIndex: (name) => `in ${name}`,
  cited: (number) => `cited as [${number}]`,
  foundFor: (texts) => `Also found for ${texts}`,
  budget: "Token budget",
  apply: "Apply",
  ofTokens: (most) => ` of ${shortNumber(most)} tokens`,
  contextText: "Context for the language model",
  considered: "Chunks that were considered",
  contextColumns: ["chunk", "role", "tokens", "outcome"],
  andMore: (number) => `and ${shortNumber(number)} more`,
  relevance: (value) => `Relevance ${value.toFixed(2)}: how likely the results answer the query.`,
  whyNot: "Why not this one?",
  expectedHint: "part of a document's name, or a chunk such as notes.md#0",
  explain: "Explain",
  noChunk: "Several documents have that in their name. Choose one:",
  nearestChunk: "Its chunk that is nearest to the query: ",
  timeline: (time) => `Timeline: ${time} in total`,
  matched: (words) => `Matched words: ${words}`,
  matchedAbove: (words) => `in the title and headings: ${words}`,
  fused: (value) => `Combined score ${value}`,
  reranked: (before, after) =>
    `reranking ${before === after ? "kept it at rank" : `moved it from rank ${before} to`} ${after} of these results`,
  notFound: "not found",
  rank: (rank) => `rank ${rank}`,
  vector: "vector search",
  keyword: "keyword search",
  reranker: "reranker",
  stages: "Stages of the search, in the order in which they began",
  stageColumns: (scale) => ["stage", `0 to ${scale} ms`, "time", "chunks", "what happened"],
  deadline: (time, isNear, share) =>
    `The deadline is ${time} ms after the start${
      isNear ? ": the line in each row" : `, far beyond the right edge: ${shortNumber(share)}% of it was used`
    }.`,
  fromTo: (start, end) => `from ${start} to ${end} ms`,
  attemptFailed: (attempt, time, error) => `attempt ${attempt} failed after ${time} ms: ${error}`,
  attempts: (number) => `${number} attempts`,
  dropped: (number) => `${number} dropped`,
  otherMode: "The other search mode",
  compareWith: "with",
  onlyHere: "only here",
  sameRank: "same rank on both sides",
  otherRank: (rank) => `rank ${rank} on the other side`,
  saveCase: "Save as a test case",
  caseHint: "Choose the documents that this query should find, or none. Run the file with: retrieval suite run FILE",
  save: "Save",
  sourceTitle: "Source",
  closeSource: "Close the source",
  close: "Close",
  previousResult: "Previous result",
  nextResult: "Next result",
  loading: "Loading…",
  gone: "It may have been removed, or renamed since its file was indexed again.",
  document: "Document",
  section: "Section",
  indexedAt: "Indexed",
  comparing: "Comparing…",
  compareSource: "Compare with what was indexed",
  fileChanged: "The file was changed since it was indexed: this is the text from then.",
  unchanged: "Unchanged: this is exactly what was indexed.",
  damaged: (details) => `Damaged: ${details}`,
  chunkGone: "Gone: the index no longer contains this chunk.",
  openOriginal: "Open the original",
  copyQuote: "Copy the text",
  copyCitation: "Copy citation",
  copyLink: "Copy link",
  localLink: "Copied. It works on this computer only.",
  details: "Details",
  showText: "Show as text",
  place: "Place",
  readOn: "Read on",
  fromStart: "The document from its start",
  chapter: (title) => `Chapter: ${title}`,
  partOf: (name, from, to, all) => {
    const text = range(name, [from, to]);
    return `${text[0].toUpperCase()}${text.slice(1)}${all ? ` of ${all}` : ""}`;
  },
  morePages: (number) => `Show ${count(number, "more page")} of the chunk`,
  pageOf: (number, all) => `Page ${number} of ${all}`,
  notOnPage: "; the words of the chunk were not found on it",
  title: "Ask the documents",
  titleOf: (query) => `${query} – the documents`,
  filters: (number) => `Filters${number ? ` (${number})` : ""}`,
  removeFilter: "Remove the filter",
  noFields: (reason) => `The fields can't be loaded: ${reason}`,
  withoutFields: "The chunks of this index have no fields to filter by.",
  remove: "Remove",
  removeFilterOn: (field) => `Remove the filter on ${field}`,
  filterAdded: "Filter added",
  condition: "Condition",
  field: "Field",
  value: "Value",
  add: "Add",
  range: (min, max) => `${min} to ${max}`,
  filesToIndex: "Files to index",
  dropHere: "Drop files here, or",
  chooseFiles: "choose them",
  accepted: (most) => `PDF, Word, Markdown, code and more, at most ${most} each.`,
  kinds: "All kinds",
  addedFiles: "Files that were added",
  waiting: "waiting",
  sending: "sending",
  reading: "reading",
  progress: ({ embedded, to_embed: all, passages }) =>
    all ? `${shortNumber(embedded)} of ${chunks(all)} embedded` : chunks(passages ?? 0),
  indexed: ({ unchanged, passages }) => (unchanged && !passages ? "unchanged" : `indexed, ${chunks(passages)}`),
  notIndexed: (reason) => `not indexed: ${reason}`,
  uploadsOver: (indexed, failed) => `${indexed} indexed${failed ? `, ${failed} failed` : ""}`,
  noReason: "the server gave no reason",
  unreadableKind: "files of this kind cannot be read",
  tooLarge: (found, most) => `it has ${found}, and the limit is ${most}`,
  index: "Index",
  notEmbedded: (number) => `${chunks(number)} not embedded yet: until then, only keyword search finds them.`,
  fields: (number) => `${count(number, "field")} to filter by`,
  fieldsToFilter: "Fields to filter by",
  fieldColumns: ["field", "type", "chunks", "values"],
  partOfName: "Words of a document's name or title",
  find: "Find",
  documents: "Documents",
  documentColumns: ["document", "chunks", ""],
  noSuchName: "No document has these words in its name or title.",
  noDocuments: "There are no documents.",
  more: "More",
  skippedFiles: "If a file is missing here, it was skipped. For the reason, run: retrieval index FOLDER",
  removeDocument: (id) => `Remove ${id} from the index? Its file is kept.`,
  removed: "Removed",
  openSource: (number, title) => `Open source ${number}: ${title}`,
  whyTrusted: "What is this based on?",
};
