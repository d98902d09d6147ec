/* Whether a text is well-formed XML, of the part of XML that an SVG picture needs. */
#ifndef TERN_TESTS_XML_CHECK_H
#define TERN_TESTS_XML_CHECK_H

/* NULL, or what is wrong. Elements, attributes in double quotes, text, the entities lt, gt, amp and quot; UTF-8 without
 * control characters. No comments, declarations or processing instructions. */
const char *xml_check(const char *text);

#endif
