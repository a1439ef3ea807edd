package store

import (
	"strings"
	"testing"
	"time"
)

func TestS3KeepsTheContractWithBucketsInPathsAndInHostNames(t *testing.T) {
	const login = "accesskey=test:tester;secretkey=test-key;"
	server := newFakeS3(t)
	contract(t, opened(t, "s3", login+"path_style_access=true;timeout=60000;region=eu-west-1;proxyhost=;proxyport=;endpoint="+server.URL,
		Session{}), "bucket-1")
	server = newFakeS3(t)
	server.Domain = "store.example:8080"
	address := strings.TrimPrefix(server.URL, "http://")
	contract(t, opened(t, "s3", login+"endpoint=http://store.example:8080;proxies="+address, Session{}), "bucket-1")
}

// The examples are from AWS's documentation ("Signature Calculations for the Authorization Header").
const (
	exampleAccess = "AKIAIOSFODNN7EXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	exampleHost   = "examplebucket.s3.amazonaws.com"
)

var exampleTime = time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)

func TestSignaturesAreThoseOfAWSsExamples(t *testing.T) {
	s := newSigner(exampleAccess, exampleSecret, "us-east-1")
	for _, test := range []struct{ query, signature string }{
		{"lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		stamp, authorization := s.sign(exampleTime, "GET", "/", test.query, exampleHost, emptyHash)
		want := "AWS4-HMAC-SHA256 Credential=" + exampleAccess + "/20130524/us-east-1/s3/aws4_request," +
			"SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=" + test.signature
		if stamp != "20130524T000000Z" || authorization != want {
			t.Errorf("%s: %s %s", test.query, stamp, authorization)
		}
	}
}

func TestTheKeyOfADayIsNotTheNexts(t *testing.T) {
	server := newFakeS3(t)
	s := opened(t, "s3", "accesskey=test:tester;secretkey=test-key;endpoint="+server.URL, Session{}).(*s3)
	now := exampleTime.Add(-time.Minute)
	s.now = func() time.Time { now = now.Add(time.Minute); return now }
	for range 3 {
		if err := s.CreateContainer(t.Context(), "b"); err != nil {
			t.Error(err)
		}
	}
}

func TestAWrongKeyIsNamedWithoutShowingIt(t *testing.T) {
	server := newFakeS3(t)
	s := opened(t, "s3", "accesskey=test:tester;secretkey=other-secret;endpoint="+server.URL, Session{}).(*s3)
	for _, err := range []error{s.CreateContainer(t.Context(), "b"), s.Delete(t.Context(), "b", "o")} {
		if KindOf(err) != Auth || !strings.Contains(err.Error(), "SignatureDoesNotMatch") ||
			strings.Contains(err.Error(), "other-secret") || strings.Contains(err.Error(), "test:tester") ||
			strings.Contains(err.Error(), "\n") {
			t.Error(err)
		}
	}
}
